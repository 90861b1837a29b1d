// Server and client of the suite's mesh tests. The suite starts the server in Pods, runs `client URL` in their containers and
// reads from its output who answered, how, and what that server was sent.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	service = "canopus.mesh.Echo"
	method  = "/" + service + "/Echo"
	timeout = 10 * time.Second
)

func main() {
	if filepath.Base(os.Args[0]) == "client" {
		if err := call(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	serve(os.Args[1:])
}

// serve opens the ports of the flags --port, --tls, --grpc and --tcp; the other flags of the suite need no answer.
func serve(arguments []string) {
	var plain, encrypted []string
	for _, argument := range arguments {
		name, value, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		switch name {
		case "port":
			plain = append(plain, value)
		case "tls":
			encrypted = append(encrypted, value)
		case "grpc":
			go serveGRPC(listen(value))
		case "tcp":
			go serveTCP(listen(value))
		}
	}
	for _, port := range plain {
		if !slices.Contains(encrypted, port) {
			go serveHTTP(listen(port), port)
		}
	}
	for _, port := range encrypted {
		config := &tls.Config{Certificates: []tls.Certificate{selfSigned()}, NextProtos: []string{"h2", "http/1.1"}}
		go serveHTTP(tls.NewListener(listen(port), config), port)
	}
	// Some of the suite's servers have no port at all, and only serve to call others from.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}

func listen(port string) net.Listener {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func selfSigned() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"echo"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}
}

func serveHTTP(listener net.Listener, port string) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	handler := func(answer http.ResponseWriter, request *http.Request) {
		var body bytes.Buffer
		field(&body, "ServicePort", port)
		field(&body, "Host", request.Host)
		field(&body, "URL", request.URL.RequestURI())
		field(&body, "Method", request.Method)
		field(&body, "Proto", request.Proto)
		address, _, _ := net.SplitHostPort(request.RemoteAddr)
		field(&body, "IP", address)
		for name, values := range request.Header {
			for _, value := range values {
				field(&body, "RequestHeader", name+":"+value)
			}
		}
		field(&body, "Hostname", hostname())
		answer.Header().Set("Content-Type", "text/plain")
		_, _ = answer.Write(body.Bytes())
	}
	server := &http.Server{Handler: http.HandlerFunc(handler), Protocols: protocols, ReadHeaderTimeout: timeout}
	log.Fatal(server.Serve(listener))
}

func serveTCP(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer connection.Close()
			fmt.Fprintf(connection, "Hostname=%s\n", hostname())
			_, _ = io.Copy(connection, connection)
		}()
	}
}

type echo struct{}

func serveGRPC(listener net.Listener) {
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(
			_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			if err := decode(new(emptypb.Empty)); err != nil {
				return nil, err
			}
			var body bytes.Buffer
			sent, _ := metadata.FromIncomingContext(ctx)
			field(&body, "Host", strings.Join(sent.Get(":authority"), ","))
			for name, values := range sent {
				for _, value := range values {
					field(&body, "RequestHeader", name+":"+value)
				}
			}
			field(&body, "Hostname", hostname())
			return wrapperspb.String(body.String()), nil
		}}},
	}, echo{})
	log.Fatal(server.Serve(listener))
}

func field(body *bytes.Buffer, name, value string) {
	fmt.Fprintf(body, "%s=%s\n", name, value)
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

type request struct {
	url     *url.URL
	method  string
	headers http.Header
	count   int
}

func call(arguments []string) error {
	request, err := parse(arguments)
	if err != nil {
		return err
	}
	send := sendHTTP()
	if request.url.Scheme == "grpc" {
		connection, err := grpc.NewClient("passthrough:///"+request.url.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer connection.Close()
		send = sendGRPC(connection)
	}
	for index := range request.count {
		answer, err := send(request)
		if err != nil {
			return err
		}
		// An empty line parts the answers.
		for line := range strings.Lines(answer) {
			fmt.Printf("[%d body] %s", index, line)
		}
		fmt.Println()
	}
	return nil
}

func parse(arguments []string) (request, error) {
	parsed := request{method: http.MethodGet, headers: http.Header{}, count: 1}
	for index := 0; index < len(arguments); index++ {
		argument := arguments[index]
		name, value, _ := strings.Cut(argument, "=")
		switch {
		case argument == "-H" && index+1 < len(arguments):
			index++
			name, value, _ := strings.Cut(arguments[index], ":")
			parsed.headers.Add(name, value)
		case name == "--method":
			parsed.method = value
		case name == "--count":
			count, err := strconv.Atoi(value)
			if err != nil {
				return parsed, err
			}
			parsed.count = count
		default:
			target, err := url.Parse(argument)
			if err != nil {
				return parsed, err
			}
			parsed.url = target
		}
	}
	if parsed.url == nil {
		return parsed, fmt.Errorf("usage: client URL [--method=M] [-H NAME:VALUE] [--count=N]")
	}
	return parsed, nil
}

func sendHTTP() func(request) (string, error) {
	client := &http.Client{
		Timeout:   timeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		// The tests look at redirections themselves.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(wanted request) (string, error) {
		request, err := http.NewRequest(wanted.method, wanted.url.String(), nil)
		if err != nil {
			return "", err
		}
		request.Header = wanted.headers.Clone()
		if host := request.Header.Get("Host"); host != "" {
			request.Host = host
		}
		answer, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		var out bytes.Buffer
		field(&out, "StatusCode", strconv.Itoa(answer.StatusCode))
		for name, values := range answer.Header {
			for _, value := range values {
				field(&out, "ResponseHeader", name+":"+value)
			}
		}
		body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
		out.Write(bytes.TrimSpace(body))
		out.WriteByte('\n')
		return out.String(), err
	}
}

func sendGRPC(connection *grpc.ClientConn) func(request) (string, error) {
	return func(wanted request) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		for name, values := range wanted.headers {
			for _, value := range values {
				ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), value)
			}
		}
		answer := new(wrapperspb.StringValue)
		err := connection.Invoke(ctx, method, new(emptypb.Empty), answer)
		// The suite reads codes of HTTP for both protocols.
		code := http.StatusOK
		if status.Code(err) != codes.OK {
			code = http.StatusInternalServerError
		}
		return fmt.Sprintf("StatusCode=%d\n%s", code, answer.GetValue()), nil
	}
}
