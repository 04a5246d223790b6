# Kept behind one port: MCP, the HTTP channel and the pages. See docs/tasks/serving.md.
#
#   docker build -t kept .
#   docker run --rm -v kept:/data kept kept token create me --scope admin
#   docker run -p 127.0.0.1:8750:8750 -v kept:/data kept

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY docs/reference/config.md docs/reference/config.md
COPY src src
RUN python -m venv /opt/kept \
    && /opt/kept/bin/pip install --no-cache-dir '.[serve,anthropic,openai]' \
    && /opt/kept/bin/python -m compileall -q /opt/kept/lib

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin kept \
    && install -d -o kept -g kept -m 700 /data /data/home /data/workspace
COPY --from=build /opt/kept /opt/kept
ENV PATH=/opt/kept/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KEPT_HOME=/data/home \
    KEPT_WORKSPACE=/data/workspace \
    KEPT_GATEWAY__SERVE__HOST=0.0.0.0
USER kept
WORKDIR /data
VOLUME /data
EXPOSE 8750
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8750/healthz', timeout=4)"]
CMD ["kept", "serve", "--log-format", "json"]
