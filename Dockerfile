# A node of a Ray cluster with this package: for docker-compose.yml and docs/cluster.md.
# Tags can be moved. To pin the bases, add the digests that these commands print, as in python:TAG@sha256:…
#   docker buildx imagetools inspect python:3.11.14-bookworm
#   docker buildx imagetools inspect python:3.11.14-slim-bookworm

# The whole image has the C compiler that the package's compiled part takes.
FROM python:3.11.14-bookworm AS build
WORKDIR /app
COPY pyproject.toml hatch_build.py README.md LICENSE /app/
COPY decentral_dp /app/decentral_dp
COPY scenarios /app/scenarios
COPY topologies /app/topologies
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.11.14-slim-bookworm
# An index of CPU builds of torch, where one is at hand, saves gigabytes.
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /app
COPY --from=build /wheel /wheel
# Jobs of KubeRay need what ray[default] has.
RUN pip install --no-cache-dir "$(ls /wheel/*.whl)[all]" "ray[default]" \
    && useradd --uid 1000 --create-home node && mkdir /app/runs && chown node /app/runs
USER 1000
