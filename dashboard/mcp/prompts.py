"""Prompts for the usual questions, which a client offers to people."""

from collections.abc import Mapping
from typing import NamedTuple

from mcp.types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

#: The API's maximum length of a name.
_LONGEST_NAME = 1_000


class UsualQuestion(NamedTuple):
    """A question: its purpose, its arguments, and the instruction for the agent."""

    means: str
    arguments: Mapping[str, str]
    text: str


QUESTIONS: Mapping[str, UsualQuestion] = {
    "what-is-wrong": UsualQuestion(
        "What is wrong now, and what to do first",
        {},
        "Call list_incidents with state open. For the worst one call explain_incident. Tell its cause, what "
        "it blocks, since when, and the next step. Say what cannot be seen (gaps). If there is none, say so.",
    ),
    "why-is-it-stuck": UsualQuestion(
        "Why a transactional id, a group or a query makes no progress",
        {"name": "a transactional id, consumer group or query"},
        "Find {name} by list_transactions, list_groups and list_queries (q). Read its detail, the open "
        "incident that names it, and who blocks whom. Tell the cause, its certainty, and the next step.",
    ),
    "safe-to-deploy": UsualQuestion(
        "Whether a query, or all of a cluster, may be restarted now",
        {"name": "a query or a cluster"},
        "Call query_safe_to_stop or cluster_safe_to_stop for {name}. Tell the verdict, its reason, and what "
        "a restart would do. Do not guess where it is unknown.",
    ),
    "plan-the-next-step": UsualQuestion(
        "Prepare what ends an incident, for a person to confirm",
        {"number": "the number of an incident"},
        "Call explain_incident for {number}. If it offers an action, call make_plan with its cluster, act "
        "and subjects. Tell steps, effects and refusals, and the link confirm_at, where a person confirms.",
    ),
}


def described_prompts() -> list[Prompt]:
    """Return all prompts with their arguments."""
    return [
        Prompt(
            name=name,
            description=question.means,
            arguments=[
                PromptArgument(name=argument, description=means, required=True)
                for argument, means in question.arguments.items()
            ],
        )
        for name, question in QUESTIONS.items()
    ]


def filled_prompt(name: str, given: Mapping[str, str]) -> GetPromptResult:
    """Return a prompt with its arguments; raises ValueError for an unknown prompt or a missing argument."""
    question = QUESTIONS.get(name)
    if question is None:
        raise ValueError(f"No prompt is called {name!r}: there are {', '.join(QUESTIONS)}.")
    if missing := [argument for argument in question.arguments if not given.get(argument)]:
        raise ValueError(f"{name} needs {', '.join(missing)}.")
    # A name from the cluster is quoted as data: its text is no instruction.
    quoted = {argument: ascii(given[argument][:_LONGEST_NAME]) for argument in question.arguments}
    text = TextContent(text=question.text.format(**quoted))
    return GetPromptResult(description=question.means, messages=[PromptMessage(role="user", content=text)])
