# Targets: service (the coordinator, and every command), dashboard, worker (the demonstration's), audit (Spark).
#   docker build --target service --tag batonpass .
# Everything of Python comes from deploy/locks, hash by hash. PYTHON is the base of all of them; build and runtime must
# share it, because an environment leads to the interpreter that it was made with. Pinned: PYTHON=...@sha256:... COMMIT is
# written down beside it, in provenance.json.
ARG PYTHON=python:3.11-slim-bookworm
ARG COMMIT=

FROM ${PYTHON} AS tools
WORKDIR /build
COPY deploy/locks/bootstrap.lock ./
RUN python3 -m venv tools \
    && tools/bin/pip install --no-cache-dir --quiet --disable-pip-version-check --require-hashes -r bootstrap.lock

# The packages come first and by themselves: they change seldom, and what is above them is quick.
FROM tools AS service-packages
COPY deploy/locks/run.lock ./
RUN python3 -m venv --without-pip /opt/batonpass \
    && tools/bin/uv pip install --no-cache --quiet --python /opt/batonpass --require-hashes --compile-bytecode -r run.lock

FROM tools AS audit-packages
COPY deploy/locks/audit.lock ./
RUN python3 -m venv --without-pip /opt/batonpass \
    && tools/bin/uv pip install --no-cache --quiet --python /opt/batonpass --require-hashes --compile-bytecode -r audit.lock

FROM tools AS sbom-tool
COPY deploy/locks/sbom.lock ./
RUN python3 -m venv --without-pip sbom-tool \
    && tools/bin/uv pip install --no-cache --quiet --python sbom-tool --require-hashes -r sbom.lock

FROM tools AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY migrations migrations
COPY docs/runbooks docs/runbooks
RUN tools/bin/pip wheel --no-cache-dir --quiet --no-deps --no-build-isolation --wheel-dir dist .

FROM service-packages AS service-environment
COPY --from=sbom-tool /build/sbom-tool sbom-tool
COPY --from=wheel /build/dist dist
RUN tools/bin/uv pip install --no-cache --quiet --python /opt/batonpass --no-deps --compile-bytecode dist/*.whl \
    && sbom-tool/bin/cyclonedx-py environment --output-format JSON --output-file /opt/batonpass/sbom.cdx.json /opt/batonpass
COPY deploy/image/provenance.py ./
ARG PYTHON
ARG COMMIT
RUN PYTHON="$PYTHON" COMMIT="$COMMIT" python3 provenance.py run.lock dist/*.whl > /opt/batonpass/provenance.json

FROM audit-packages AS audit-environment
COPY --from=sbom-tool /build/sbom-tool sbom-tool
COPY --from=wheel /build/dist dist
RUN tools/bin/uv pip install --no-cache --quiet --python /opt/batonpass --no-deps --compile-bytecode dist/*.whl \
    && sbom-tool/bin/cyclonedx-py environment --output-format JSON --output-file /opt/batonpass/sbom.cdx.json /opt/batonpass
COPY deploy/image/provenance.py ./
ARG PYTHON
ARG COMMIT
RUN PYTHON="$PYTHON" COMMIT="$COMMIT" python3 provenance.py audit.lock dist/*.whl > /opt/batonpass/provenance.json

# What runs has neither pip nor a compiler, and is nobody: a number, so that Kubernetes can see that it is not root.
FROM ${PYTHON} AS runtime
RUN groupadd --gid 10001 batonpass \
    && useradd --uid 10001 --gid 10001 --create-home --home-dir /var/lib/batonpass --shell /usr/sbin/nologin batonpass
ENV PATH=/opt/batonpass/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/batonpass
USER 10001:10001

FROM runtime AS audit
USER 0
# Whatever Java 17 Debian has is the one with its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=audit-environment /opt/batonpass /opt/batonpass
COPY --chmod=755 deploy/spark/entrypoint.sh /opt/batonpass/bin/audit-entrypoint
ENV PYSPARK_PYTHON=/opt/batonpass/bin/python3 \
    SPARK_HOME=/opt/batonpass/lib/python3.11/site-packages/pyspark
HEALTHCHECK NONE
ENTRYPOINT ["tini", "--", "audit-entrypoint"]
CMD ["audit", "--help"]

FROM runtime AS service
COPY --from=service-environment /opt/batonpass /opt/batonpass
COPY deploy/image/healthcheck.py /opt/
ENV BATONPASS_HOST=:: \
    BATONPASS_LOG_FORMAT=json
EXPOSE 8420
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "/opt/healthcheck.py", "BATONPASS", "8420", "/readyz"]
ENTRYPOINT ["batonpass"]
CMD ["serve"]

FROM service AS dashboard
ENV BATONPASS_DASHBOARD_HOST=::
EXPOSE 8421
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "/opt/healthcheck.py", "BATONPASS_DASHBOARD", "8421", "/livez"]
CMD ["dashboard"]

FROM service AS worker
COPY deploy/demo /opt/demo
HEALTHCHECK NONE
ENTRYPOINT ["python3", "/opt/demo/demo.py"]
CMD ["worker"]
