# Build: docker build -t tenure .
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md ./
COPY src ./src
COPY migrations ./migrations
RUN python -m venv /opt/tenure && /opt/tenure/bin/pip install --no-cache-dir .

FROM python:3.13-slim
# A fresh volume takes over the owner of the folder that it is mounted on: without this one, root's.
RUN useradd --system --uid 10001 --home-dir /var/lib/tenure --create-home tenure \
    && install --directory --owner tenure --group tenure --mode 0700 /var/lib/tenure/artifacts
COPY --from=build /opt/tenure /opt/tenure
ENV PATH=/opt/tenure/bin:$PATH PYTHONUNBUFFERED=1 TENURE_DATA_DIR=/var/lib/tenure
USER tenure
WORKDIR /var/lib/tenure
EXPOSE 8080
# Tenure ends in order on SIGTERM: readiness, grace, leases released.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tenure"]
CMD ["serve"]
