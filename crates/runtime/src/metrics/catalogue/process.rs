//! The process and its build.

super::metrics! {
    PROCESS

    /// Build of each component.
    Gauge ISTIO_BUILD = "istio_build"["component", "tag"];

    /// Version of the control plane.
    Gauge PILOT_INFO = "pilot_info"["version"];

    /// Seconds the control plane is up.
    Gauge ISTIOD_UPTIME_SECONDS = "istiod_uptime_seconds"[];

    /// Processor time used, in seconds.
    Counter PROCESS_CPU_SECONDS_TOTAL = "process_cpu_seconds_total"[];

    /// File descriptors that may be open.
    Gauge PROCESS_MAX_FDS = "process_max_fds"[];

    /// Bytes received over the network by everything in this network namespace.
    Counter PROCESS_NETWORK_RECEIVE_BYTES_TOTAL = "process_network_receive_bytes_total"[];

    /// Bytes sent over the network by everything in this network namespace.
    Counter PROCESS_NETWORK_TRANSMIT_BYTES_TOTAL = "process_network_transmit_bytes_total"[];

    /// File descriptors that are open.
    Gauge PROCESS_OPEN_FDS = "process_open_fds"[];

    /// Bytes of memory in use.
    Gauge PROCESS_RESIDENT_MEMORY_BYTES = "process_resident_memory_bytes"[];

    /// Unix time at which the process started.
    Gauge PROCESS_START_TIME_SECONDS = "process_start_time_seconds"[];

    /// Bytes of address space in use.
    Gauge PROCESS_VIRTUAL_MEMORY_BYTES = "process_virtual_memory_bytes"[];

    /// Bytes of address space that may be in use.
    Gauge PROCESS_VIRTUAL_MEMORY_MAX_BYTES = "process_virtual_memory_max_bytes"[];
}
