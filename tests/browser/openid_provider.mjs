// A certified OpenID Connect provider (oidc-provider of npm) for one client, with its own pages for people.
import { Provider } from "oidc-provider";

const [port, fenceline, secret] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "fenceline",
      client_secret: secret,
      redirect_uris: [`${fenceline}/sign-in/corp/callback`],
      post_logout_redirect_uris: [`${fenceline}/login/`],
    },
  ],
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
  conformIdTokenClaims: process.argv[5] === "userinfo",
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: id, groups: ["sre"] }) }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
