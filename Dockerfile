# A node of a Ray cluster with this package: for docker-compose.yml and docs/cluster.md.

# The whole image has the C compiler that the package's compiled part takes.
FROM python:3.11 AS build
WORKDIR /app
COPY pyproject.toml hatch_build.py README.md LICENSE /app/
COPY decentral_dp /app/decentral_dp
COPY scenarios /app/scenarios
COPY topologies /app/topologies
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.11-slim
# An index of CPU builds of torch, where one is at hand, saves gigabytes.
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /app
COPY --from=build /wheel /wheel
# Jobs of KubeRay and metrics need what ray[default] has.
RUN pip install --no-cache-dir "$(ls /wheel/*.whl)[all]" "ray[default]"
