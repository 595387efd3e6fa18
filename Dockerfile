# syntax=docker/dockerfile:1
# One image for every role; the command chooses it: `api`, `worker`, or `up` for all in one process.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches outlive the build, the layer does not hold them; hence the copy out of target/ in the same step.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package roundhouse \
    && install -D -m 0755 target/release/roundhouse /out/roundhouse

FROM debian:bookworm-slim
# Root certificates for the model's servers. The `claude` and `codex` programs are not in this image: build one on top
# of it that has them, if agents use those engines.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --user-group --home-dir /data --shell /usr/sbin/nologin roundhouse \
    && install -d -m 0700 -o roundhouse -g roundhouse /data
COPY --from=build /out/roundhouse /usr/local/bin/roundhouse

ENV ROUNDHOUSE_DATA_DIR=/data
VOLUME /data
WORKDIR /data
USER roundhouse
EXPOSE 7700
# For the roles that serve HTTP; a worker has to switch it off.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["roundhouse", "health"]
ENTRYPOINT ["roundhouse"]
# Listens on the container's own 127.0.0.1. To publish a port set ROUNDHOUSE_LISTEN=0.0.0.0:7700, which wants API keys.
CMD ["up"]
