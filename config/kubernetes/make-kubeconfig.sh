#!/bin/sh
# Prints a kubeconfig for the module: make-kubeconfig.sh [SERVER [NAME]] > kubeconfig
#
# SERVER is the API server as the module's container reaches it; 127.0.0.1 is the container itself. NAME is looked for
# in its certificate where that does not carry SERVER's own; `kubernetes` is in every cluster's. Without both it is
# the name by which the deployment template makes the host known. Run it where
# kubectl may read the Secret `slice-healer-token` (10-account.yaml); KUBECTL may be "k3s kubectl" or
# "microk8s kubectl". What it prints holds a token: mode 0400, owner 64200.
set -eu
server=${1:-https://kubernetes-host:6443}
name=${2:-}
[ $# -gt 0 ] || name=kubernetes
read_secret() {
  ${KUBECTL:-kubectl} -n slice-healer get secret slice-healer-token -o "jsonpath={.data.$1}"
}
token=$(read_secret token | base64 -d)
ca=$(read_secret 'ca\.crt')
if [ -z "$token" ] || [ -z "$ca" ]; then
  echo "make-kubeconfig: the Secret slice-healer-token holds no token yet; is config/kubernetes applied?" >&2
  exit 1
fi
cat <<END
apiVersion: v1
kind: Config
current-context: edge
clusters: [{name: edge, cluster: {server: "$server", ${name:+tls-server-name: "$name", }certificate-authority-data: $ca}}]
users: [{name: slice-healer, user: {token: $token}}]
contexts: [{name: edge, context: {cluster: edge, user: slice-healer}}]
END
