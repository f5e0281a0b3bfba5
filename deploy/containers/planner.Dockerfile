# The planner: every verb that computes, and the form of `syncline serve`.
#   docker build -f deploy/containers/planner.Dockerfile -t syncline-planner .
#   docker run --rm -v "$PWD":/work syncline-planner plan cluster.yaml job.yaml
FROM python:3.12-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir -c /src/constraints.txt -w /wheels "/src[watch,png]"

FROM python:3.12-slim-bookworm
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels "syncline[watch,png]" && rm -rf /wheels && useradd --uid 1000 --create-home planner
USER 1000
WORKDIR /work
ENTRYPOINT ["syncline"]
CMD ["--help"]
