# Holds the namespaces of a test cluster's node and takes everything down when its input ends, however the test ended.
#
#   guard.sh NAME DIRECTORY
#
# Prints the id of the process that holds the namespaces. NAME is the cgroup that all processes of the cluster are in.
name=$1 directory=$2

unshare --net --mount --propagation private sleep infinity </dev/null &
holder=$!
echo "$holder"
read -r word

members() {
    find /sys/fs/cgroup/pids/"$name" /sys/fs/cgroup/"$name" -name cgroup.procs -exec cat {} + 2>/dev/null
}
for _ in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(members)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null
    sleep 0.2
done
kill -KILL "$holder"
wait "$holder" 2>/dev/null
for _ in 1 2 3 4 5; do
    find /sys/fs/cgroup/*/"$name" /sys/fs/cgroup/"$name" -depth -type d -exec rmdir {} + 2>/dev/null
    ls -d /sys/fs/cgroup/*/"$name" /sys/fs/cgroup/"$name" >/dev/null 2>&1 || break
    sleep 0.2
done
# After a test that ended by itself, the directory is its own to remove.
[ "$word" = done ] || rm -rf -- "$directory"
