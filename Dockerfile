# A node of a Ray cluster with this package: for docker-compose.yml and docs/cluster.md.
FROM python:3.11-slim

# An index of CPU builds of torch, where one is at hand, saves gigabytes.
ARG PIP_EXTRA_INDEX_URL=

WORKDIR /app
COPY pyproject.toml README.md LICENSE /app/
COPY decentral_dp /app/decentral_dp
COPY scenarios /app/scenarios
COPY topologies /app/topologies
RUN pip install --no-cache-dir ".[all]"
