# The broker, and the agents of the demo. One image, no build tools in it, not root.
#
#   docker build -t a2a-handoff .
#   docker run --rm --read-only --tmpfs /tmp -v handoffs:/data -p 127.0.0.1:8080:8080 \
#     -e A2A_HANDOFF_HOST=0.0.0.0 -e A2A_HANDOFF_ALLOW_UNAUTHENTICATED=true a2a-handoff

FROM python:3.13-slim AS build
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY agent_cards agent_cards
COPY a2a_handoff a2a_handoff
# What is installed has the versions and hashes of the lock; of the lock only what the wheel and its extras need is.
RUN uv build --wheel --out-dir /wheels \
 && uv venv /opt/a2a-handoff \
 && echo "$(ls /wheels/*.whl)[auth,grpc,mcp,nats,postgres,signing] --hash=sha256:$(sha256sum /wheels/*.whl | cut -d ' ' -f 1)" > /wheels/requirements.txt \
 && uv pip install --python /opt/a2a-handoff/bin/python --require-hashes --only-binary :all: --compile-bytecode \
      --constraint requirements.lock --requirement /wheels/requirements.txt

FROM python:3.13-slim
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip \
 && useradd --system --uid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin handoff \
 && install --directory --owner handoff --group handoff /data
COPY --from=build /opt/a2a-handoff /opt/a2a-handoff
COPY agent_cards /app/agent_cards
ENV PATH=/opt/a2a-handoff/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    A2A_HANDOFF_STORE=sqlite:////data/handoffs.db
WORKDIR /app
USER handoff
VOLUME /data
EXPOSE 8080
CMD ["a2a-handoff", "serve"]
