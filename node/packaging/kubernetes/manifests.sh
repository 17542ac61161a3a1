#!/usr/bin/env bash
# Makes doyen.yaml from the chart in ../helm/doyen. With --check, only says whether it is what the
# chart makes, and looks at the chart with the tools that this machine has:
#     go install helm.sh/helm/v3/cmd/helm@latest
#     pip install kubernetes-validate     # brings the schemas of Kubernetes, so it needs no network
set -euo pipefail
cd "$(dirname "$0")"
chart=../helm/doyen
version=1.35

digest=$(cd $chart && find . -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-16)
render() {
    echo "# Made by \`just manifests\` from the chart in node/packaging/helm/doyen ($digest). Change"
    echo "# the chart, not this file. docs/install.md says how to make the Secret first."
    helm template doyen $chart --kube-version $version "$@" | sed '/^# Source: /d'
}

if [ "${1:-}" != --check ]; then
    render > doyen.yaml
    exit
fi
if ! grep -q "($digest)" doyen.yaml; then
    echo "doyen.yaml is of another chart than that in node/packaging/helm/doyen: run" \
        "\`just manifests\`" >&2
    exit 1
fi
if ! command -v helm > /dev/null; then
    echo "NOT CHECKED: the chart and the manifests, because helm is not installed" >&2
    exit
fi
helm lint --strict --quiet $chart
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
render > "$made/doyen.yaml"
cmp "$made/doyen.yaml" doyen.yaml
render --set autoscaling.enabled=true,priorityClassName=x,zone.name=a,options.threads=2 \
    --set nodeSelector.zone=a,podLabels.team=x,directory.enabled=true > "$made/everything.yaml"
# A release for another zone, which joins the cluster of the first release.
render --set peers=doyen-peers,zone.name=b > "$made/other-zone.yaml"
# Kubernetes has no schema of this: Prometheus's operator brings it.
render --set serviceMonitor.enabled=true | grep '^kind: ServiceMonitor$' > /dev/null
if render --set autoscaling.enabled=true,autoscaling.min=2 > /dev/null 2>&1; then
    echo "the chart takes fewer nodes than form a cluster" >&2
    exit 1
fi
if ! command -v kubernetes-validate > /dev/null; then
    echo "NOT CHECKED: the manifests by schemas, because kubernetes-validate is not installed" >&2
    exit
fi
kubernetes-validate --strict --quiet --kubernetes-version $version "$made"/*.yaml
