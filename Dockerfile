# Warpline on a plain Debian: the tarball of a release (scripts/release.sh), and NVRTC from NVIDIA's pip package. The driver is the
# host's: the NVIDIA container toolkit mounts it. Without a GPU the CPU answers.
#
#   scripts/release.sh && docker build -t warpline --build-arg TARBALL=target/dist/warpline-0.1.0-linux-x86_64.tar.gz .
#   docker run --rm -it --gpus all -v "$PWD/data:/data:ro" -w /data warpline
#   docker run --rm --gpus all -p 5432:5432 -v "$PWD/data:/data:ro" -v "$PWD/etc:/etc/warpline:ro" warpline \
#     serve --postgres 0.0.0.0:5432 --data /data --auth /etc/warpline/users --tls-cert /etc/warpline/cert.pem --tls-key /etc/warpline/key.pem
ARG DEBIAN=debian:trixie-slim

FROM ${DEBIAN} AS nvrtc
ARG NVRTC=13.0.88
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3-pip \
  && pip install --no-cache-dir --no-deps --break-system-packages --target /nvrtc "nvidia-cuda-nvrtc==${NVRTC}" \
  && mkdir /lib-nvrtc \
  && find /nvrtc -name 'libnvrtc*.so*' -exec cp {} /lib-nvrtc/ \;

FROM ${DEBIAN}
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 10001 warpline
COPY --from=nvrtc /lib-nvrtc/ /usr/local/lib/warpline/
ARG TARBALL
ADD ${TARBALL} /opt/
RUN ln -s /opt/warpline-*/bin/warpline /usr/local/bin/warpline
# The toolkit mounts what these name.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
  LD_LIBRARY_PATH=/usr/local/lib/warpline
USER warpline
ENTRYPOINT ["warpline"]
