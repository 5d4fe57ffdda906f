module kube-iptables-agent.example/kubeiptables

go 1.19
