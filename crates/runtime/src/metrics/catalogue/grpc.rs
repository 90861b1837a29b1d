//! gRPC calls served.

super::metrics! {
    GRPC

    /// Calls begun.
    Counter GRPC_SERVER_STARTED_TOTAL = "grpc_server_started_total"["grpc_method", "grpc_service", "grpc_type"];

    /// Calls ended, by status.
    Counter GRPC_SERVER_HANDLED_TOTAL =
        "grpc_server_handled_total"["grpc_code", "grpc_method", "grpc_service", "grpc_type"];

    /// Messages received.
    Counter GRPC_SERVER_MSG_RECEIVED_TOTAL =
        "grpc_server_msg_received_total"["grpc_method", "grpc_service", "grpc_type"];

    /// Messages sent.
    Counter GRPC_SERVER_MSG_SENT_TOTAL = "grpc_server_msg_sent_total"["grpc_method", "grpc_service", "grpc_type"];

    /// Seconds taken by a call.
    Histogram GRPC_SERVER_HANDLING_SECONDS =
        "grpc_server_handling_seconds"["grpc_method", "grpc_service", "grpc_type"]
        in [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
}
