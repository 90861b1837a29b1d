// The official conformance suite of Gateway API as one program. `images` as the only argument lists the images that its
// manifests name; otherwise it takes the flags of the suite and of Go's tests.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "images" {
		if err := listImages(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	tests := []testing.InternalTest{{Name: "TestConformance", F: conformance.RunConformance}}
	testing.Main(regexp.MatchString, tests, nil, nil)
}

var image = regexp.MustCompile(`(?m)^\s*(?:- )?image:\s*"?([^\s"]+)`)

func listImages() error {
	var names []string
	err := fs.WalkDir(conformance.Manifests, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(conformance.Manifests, path)
		for _, match := range image.FindAllSubmatch(text, -1) {
			names = append(names, string(match[1]))
		}
		return err
	})
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		fmt.Println(name)
	}
	return err
}
