# Makes cgroups and a network for a test cluster's node. Nothing of the machine outside of its namespaces changes, but for a
# network link and routes to it, which go with the namespaces.
#
#   setup.sh HOLDER NAME DIRECTORY LINK HOST NODE PODS SERVICES BALANCERS
set -eu
holder=$1 name=$2 directory=$3 link=$4 host=$5 node=$6
shift 6

ip link add "$link" type veth peer name eth0 netns "$holder"
ip address add "$host/30" dev "$link"
ip link set "$link" up

if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$name/system"
    for controller in cpu cpuset memory pids; do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
        echo "+$controller" >"/sys/fs/cgroup/$name/cgroup.subtree_control" 2>/dev/null || true
    done
else
    for hierarchy in /sys/fs/cgroup/*/; do
        mkdir -p "$hierarchy$name/system"
        for group in "$hierarchy$name" "$hierarchy$name/system"; do
            # A group of this hierarchy takes no process until it has these.
            for setting in cpuset.cpus cpuset.mems; do
                if [ -f "$group/$setting" ]; then cat "$hierarchy$setting" >"$group/$setting"; fi
            done
        done
    done
fi

nsenter --target "$holder" --net --mount -- sh -eu -c '
    directory=$1 host=$2 node=$3
    # Containers may share mounts with the node, as where systemd runs.
    mount --make-rshared /
    ip link set lo up
    ip address add "$node/30" dev eth0
    ip link set eth0 up
    ip route add default via "$host"
    echo 1 >/proc/sys/net/ipv4/ip_forward
    # The kubelet sets these for the whole machine: it gets files of its own in their place.
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
        path=${setting%=*}
        file=$directory/sysctl-${path#*/}
        echo "${setting#*=}" >"$file"
        mount --bind "$file" "/proc/sys/$path"
    done
    # What the runtime leaves in fixed places goes with the namespace.
    for place in /run/netns /run/istio-cni /run/ztunnel /var/lib/cni /var/log/containers; do
        mkdir -p "$place"
        mount -t tmpfs tmpfs "$place"
    done
' setup "$directory" "$host" "$node"

for network in "$@"; do
    ip route replace "$network" via "$node" dev "$link"
done
