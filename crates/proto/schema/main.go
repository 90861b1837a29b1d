// Collects the protobuf descriptors of the Envoy, xDS and Istio APIs from the Go modules pinned in go.mod and writes
// them as one gzip-compressed FileDescriptorSet. Run by `cargo xtask gen proto`.
//
// The modules carry descriptors as string constants in generated source. They are read from the syntax tree, so the
// several hundred packages need not be compiled or listed.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	// Only so that `go mod tidy` keeps every module that provides a descriptor.
	_ "cel.dev/expr"
	_ "github.com/cncf/xds/go/udpa/annotations"
	_ "github.com/envoyproxy/go-control-plane/contrib/envoy/extensions/filters/http/alpn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/prometheus/client_model/go"
	_ "go.opentelemetry.io/proto/otlp/common/v1"
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/genproto/googleapis/rpc/status"
	_ "istio.io/api/mesh/v1alpha1"
)

// What is published; everything these files import comes along.
var wanted = regexp.MustCompile(`^(envoy|contrib|xds|udpa|networking|security|telemetry|extensions|mesh|mcp|meta|type|analysis|stats|grpc)/`)

// Of the v2 era, or an older declaration of what Envoy's contrib tree or ../protos declares today.
var unwanted = regexp.MustCompile(`^envoy/(.*/v[12](alpha\d*)?/|config/filter/network/metadata_exchange/|extensions/stats/)` +
	`|/workload_discovery/v3/discovery.proto$`)

// Two of Istio's filters never left the v2 era.
var kept = regexp.MustCompile(`^envoy/config/filter/(http/jwt_auth|network/tcp_cluster_rewrite)/`)

type module struct{ Path, Dir string }

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . OUTPUT.binpb.gz")
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	for _, m := range modules() {
		collect(m, files)
	}
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	for _, name := range sorted(files) {
		if wanted.MatchString(name) && (!unwanted.MatchString(name) || kept.MatchString(name)) {
			add(name, files, seen, set)
		}
	}
	write(os.Args[1], set)
	fmt.Printf("%d files\n", len(set.File))
}

func modules() []module {
	out, err := exec.Command("go", "list", "-m", "-json", "all").Output()
	if err != nil {
		log.Fatalf("go list: %v", err)
	}
	var all []module
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var m module
		if err := dec.Decode(&m); err != nil {
			log.Fatal(err)
		}
		if m.Dir != "" {
			all = append(all, m)
		}
	}
	return all
}

func collect(m module, files map[string]*descriptorpb.FileDescriptorProto) {
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".pb.go") {
			return err
		}
		raw := rawDescriptor(path)
		if raw == nil {
			return nil
		}
		fd := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(raw, fd); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		fd.SourceCodeInfo = nil
		if _, dup := files[fd.GetName()]; !dup {
			files[fd.GetName()] = fd
		}
		return nil
	})
	if err != nil {
		log.Fatalf("%s: %v", m.Path, err)
	}
}

// rawDescriptor finds `const file_…_rawDesc = "" + "…" + …` (or the older `[]byte{…}` form).
func rawDescriptor(path string) []byte {
	tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	for _, decl := range tree.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if ok && len(v.Values) == 1 && strings.HasSuffix(v.Names[0].Name, "_rawDesc") {
				return literal(v.Values[0], nil)
			}
		}
	}
	return nil
}

func literal(e ast.Expr, out []byte) []byte {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			if err != nil {
				log.Fatal(err)
			}
			return append(out, s...)
		}
		n, err := strconv.ParseUint(e.Value, 0, 8)
		if err != nil {
			log.Fatal(err)
		}
		return append(out, byte(n))
	case *ast.BinaryExpr:
		return literal(e.Y, literal(e.X, out))
	case *ast.CallExpr:
		return literal(e.Args[0], out)
	case *ast.CompositeLit:
		for _, el := range e.Elts {
			out = literal(el, out)
		}
	}
	return out
}

func add(name string, files map[string]*descriptorpb.FileDescriptorProto, seen map[string]bool, set *descriptorpb.FileDescriptorSet) {
	if seen[name] {
		return
	}
	seen[name] = true
	fd, ok := files[name]
	if !ok {
		log.Fatalf("%s is imported but no module provides it", name)
	}
	for _, dep := range fd.Dependency {
		add(dep, files, seen, set)
	}
	set.File = append(set.File, fd)
}

func sorted(m map[string]*descriptorpb.FileDescriptorProto) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func write(path string, set *descriptorpb.FileDescriptorSet) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if _, err := w.Write(raw); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
