# Fenceline's images: `fenceline` runs every part of it; `demo` adds Java, PySpark and the demo's jars.
# docs/deploying.md says how they are used, tests/stack/test_compose.py what is checked of this file.
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS packages
WORKDIR /build
# A package index of one's own, and a CA that signs for it: both stay out of the images. The CA is a secret of the
# build, beside the public ones in a file that lasts for one step: no layer has it.
ARG PACKAGE_INDEX=
ENV PIP_CERT=/ca/ca.pem SSL_CERT_FILE=/ca/ca.pem REQUESTS_CA_BUNDLE=/ca/ca.pem
RUN if [ -n "$PACKAGE_INDEX" ]; then \
        mkdir -p /etc/uv \
        && printf '[global]\nindex-url = %s\n' "$PACKAGE_INDEX" > /etc/pip.conf \
        && printf '[[index]]\nurl = "%s"\ndefault = true\n' "$PACKAGE_INDEX" > /etc/uv/uv.toml; \
    fi
COPY pyproject.toml requirements.txt ./
# uv comes with the hashes that the lock has for it, as in sandbox/bootstrap.sh.
RUN --mount=type=secret,id=build_ca,required=true --mount=type=tmpfs,target=/ca \
    cat /etc/ssl/certs/ca-certificates.crt /run/secrets/build_ca > /ca/ca.pem \
    && sed -n '/^uv==/,/[^\\]$/p' requirements.txt > uv.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r uv.txt \
    && python -m venv --without-pip /opt/fenceline
ENV VIRTUAL_ENV=/opt/fenceline
# As constraints, the lock gives every package its version and its hashes; the extras say which are installed.
RUN --mount=type=secret,id=build_ca,required=true --mount=type=tmpfs,target=/ca \
    cat /etc/ssl/certs/ca-certificates.crt /run/secrets/build_ca > /ca/ca.pem \
    && uv pip install --no-cache --compile-bytecode -r pyproject.toml -c requirements.txt \
    --extra dashboard --extra s3

FROM packages AS demo-packages
RUN --mount=type=secret,id=build_ca,required=true --mount=type=tmpfs,target=/ca \
    cat /etc/ssl/certs/ca-certificates.crt /run/secrets/build_ca > /ca/ca.pem \
    && uv pip install --no-cache --compile-bytecode -r pyproject.toml -c requirements.txt \
    --extra dashboard --extra s3 --extra spark --extra sandbox
COPY sandbox sandbox
# Jars with the checksums of sandbox/jars.lock.toml, all in one folder.
RUN --mount=type=secret,id=build_ca,required=true --mount=type=tmpfs,target=/ca \
    cat /etc/ssl/certs/ca-certificates.crt /run/secrets/build_ca > /ca/ca.pem \
    && /opt/fenceline/bin/python -m sandbox.java fetch spark-connector \
    && mkdir /opt/jars && find "$HOME/.m2" -name '*.jar' -exec cp {} /opt/jars/ \;

# What both images begin with; the packages come in one layer of each, so that no image has them twice.
FROM python:${PYTHON} AS base
RUN groupadd --system --gid 10001 fenceline \
    && useradd --system --uid 10001 --gid fenceline --home-dir /data --no-log-init fenceline \
    && install -d -o fenceline -g fenceline /data /data/spark /data/spark/checkpoints
ENV PATH=/opt/fenceline/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=dashboard.settings \
    FENCELINE_DATA=/data
WORKDIR /app

FROM base AS demo
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=demo-packages /opt/fenceline /opt/fenceline
COPY --from=demo-packages /opt/jars /opt/jars
COPY . .
ARG FENCELINE_TAG=
LABEL org.opencontainers.image.title=fenceline-demo org.opencontainers.image.version=$FENCELINE_TAG
USER fenceline

FROM base AS fenceline
COPY --from=packages /opt/fenceline /opt/fenceline
COPY . .
ARG FENCELINE_TAG=
LABEL org.opencontainers.image.title=fenceline org.opencontainers.image.version=$FENCELINE_TAG
USER fenceline
