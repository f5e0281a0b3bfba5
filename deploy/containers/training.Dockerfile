# The training example on two processes: DDP with its gradients synchronised by syncline, on the CPU. With GPUs, base it on your PyTorch image.
#   docker build -f deploy/containers/training.Dockerfile -t syncline-training .
#   docker run --rm syncline-training
FROM python:3.12-slim-bookworm
# Where pip finds a PyTorch without CUDA, if you have such a place: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[torch]" && useradd --uid 1000 --create-home trainer
WORKDIR /home/trainer
COPY --chown=1000 examples/training .
USER 1000
ENV OMP_NUM_THREADS=1
CMD ["torchrun", "--nproc-per-node", "2", "--standalone", "--local-addr", "127.0.0.1", "ddp.py"]
