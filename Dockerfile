# specwatch as a container: docker build -t specwatch . && docker run --rm specwatch --help
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY specwatch specwatch
COPY rules rules
RUN python -m venv /opt/specwatch && /opt/specwatch/bin/pip install --no-cache-dir '.[daemon]'

FROM python:3.13-slim
COPY --from=build /opt/specwatch /opt/specwatch
# logs of containers belong to root on most nodes; run with a user or group that may read yours
USER 65534:65534
ENV PATH=/opt/specwatch/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 STATE_DIRECTORY=/var/lib/specwatch
VOLUME /var/lib/specwatch
ENTRYPOINT ["specwatch"]
CMD ["watch", "--config", "/etc/specwatch/specwatch.toml"]
