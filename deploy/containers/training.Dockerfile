# The training example on two processes: DDP with its gradients synchronised by syncline.
#   docker build -f deploy/containers/training.Dockerfile -t syncline-training .
#   docker run --rm syncline-training                  (CPU; with GPUs, base it on your PyTorch image)
FROM python:3.12-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir "/src[torch]" && useradd --create-home trainer
COPY examples/training /work
USER trainer
WORKDIR /work
ENV OMP_NUM_THREADS=1
CMD ["torchrun", "--nproc-per-node", "2", "--standalone", "ddp.py"]
