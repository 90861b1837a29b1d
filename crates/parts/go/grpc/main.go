// A gRPC client without a proxy: it asks a control plane where its calls go (xDS, by $GRPC_XDS_BOOTSTRAP), makes the
// calls that its standard input asks for, and says on its standard output who answered.
//
// Usage: grpc-caller xds:///host:port
//
// Each line of input is an order, each line of output its outcome:
//
//	{"calls": 10, "headers": {"x-tester": "yes"}}
//	{"answers": {"v1": 9}, "failures": {"Unavailable: no healthy upstream": 1}}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	method   = "/echo.Echo/Name"
	patience = 5 * time.Second
)

type order struct {
	Calls   int               `json:"calls"`
	Headers map[string]string `json:"headers"`
}

type outcome struct {
	Answers  map[string]int `json:"answers"`
	Failures map[string]int `json:"failures"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: grpc-caller xds:///host:port")
	}
	credentials, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		log.Fatal(err)
	}
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(credentials))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	answer := json.NewEncoder(os.Stdout)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		var asked order
		if err := json.Unmarshal(input.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		if err := answer.Encode(carryOut(connection, asked)); err != nil {
			log.Fatal(err)
		}
	}
}

func carryOut(connection *grpc.ClientConn, asked order) outcome {
	got := outcome{Answers: map[string]int{}, Failures: map[string]int{}}
	for range asked.Calls {
		name, err := call(connection, asked.Headers)
		if err != nil {
			failure := status.Convert(err)
			got.Failures[failure.Code().String()+": "+failure.Message()]++
		} else {
			got.Answers[name]++
		}
	}
	return got
}

func call(connection *grpc.ClientConn, headers map[string]string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(headers))
	var name wrapperspb.StringValue
	err := connection.Invoke(ctx, method, &emptypb.Empty{}, &name)
	return name.GetValue(), err
}
