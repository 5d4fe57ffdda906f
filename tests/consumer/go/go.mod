module node-agent

go 1.19

require kube-iptables-agent.example/kubeiptables v0.0.0

// Where libkube-iptables-agent-dev installs it.
replace kube-iptables-agent.example/kubeiptables => /usr/share/gocode/src/kube-iptables-agent.example/kubeiptables
