# The agent of a host: audits, and the watch with its metrics. It reads the host through /host and changes nothing.
#   docker build -f deploy/containers/agent.Dockerfile -t syncline-agent .
#   docker run --rm --network host --pid host -v /:/host:ro syncline-agent audit --root /host
#   docker run -d --network host -v /:/host:ro -v /etc/syncline/token:/token:ro syncline-agent watch --serve --root /host --address 10.0.0.7 --token-file /token
FROM python:3.12-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir -c /src/constraints.txt -w /wheels "/src[watch,nvml,otel]"

FROM python:3.12-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends iproute2 ethtool pciutils && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels "syncline[watch,nvml,otel]" && rm -rf /wheels
EXPOSE 9750
ENTRYPOINT ["syncline"]
CMD ["watch"]
