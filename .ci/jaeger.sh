#!/usr/bin/env bash
# Builds Jaeger from its Go module, once for each version; prints where it is. Needs Go 1.24.6 or newer, which the
# go command fetches by itself if it is older. Takes a quarter of an hour the first time.
set -euo pipefail
version=v1.76.0
built="${XDG_CACHE_HOME:-$HOME/.cache}/a2a-handoff/jaeger-$version"
if [ ! -x "$built" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  cd "$scratch"
  {
    go mod init scratch
    go get -tool "github.com/jaegertracing/jaeger/cmd/jaeger@$version"
    mkdir -p "$(dirname "$built")"
    CGO_ENABLED=0 go build -ldflags="-s -w" -o "$built.new" github.com/jaegertracing/jaeger/cmd/jaeger
    mv "$built.new" "$built"
  } >&2
fi
echo "$built"
