# Fenceline's images: `fenceline` runs every part of it; `demo` adds Java, PySpark and the demo's jars.
# docs/deploying.md says how they are used, tests/sandbox/test_compose.py what is checked of this file.
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS packages
WORKDIR /build
COPY pyproject.toml requirements.txt ./
# uv comes with the hashes that the lock has for it, as in sandbox/bootstrap.sh.
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.txt > uv.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r uv.txt \
    && python -m venv --without-pip /opt/fenceline
ENV VIRTUAL_ENV=/opt/fenceline
# As constraints, the lock gives every package its version and its hashes; the extras say which are installed.
RUN uv pip install --no-cache --compile-bytecode -r pyproject.toml -c requirements.txt \
    --extra dashboard --extra s3

FROM packages AS demo-packages
RUN uv pip install --no-cache --compile-bytecode -r pyproject.toml -c requirements.txt \
    --extra dashboard --extra s3 --extra spark --extra sandbox
COPY sandbox sandbox
# Jars with the checksums of sandbox/jars.lock.toml, all in one folder.
RUN /opt/fenceline/bin/python -m sandbox.java fetch spark-connector \
    && mkdir /opt/jars && find "$HOME/.m2" -name '*.jar' -exec cp {} /opt/jars/ \;

FROM python:${PYTHON} AS fenceline
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
COPY --from=packages /opt/fenceline /opt/fenceline
COPY . .
USER fenceline

FROM fenceline AS demo
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=demo-packages /opt/fenceline /opt/fenceline
COPY --from=demo-packages /opt/jars /opt/jars
USER fenceline
