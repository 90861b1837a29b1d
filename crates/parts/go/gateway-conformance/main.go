// The official conformance suite of Gateway API as one program. `images` as the only argument lists the images that its
// manifests name; otherwise it takes the flags of the suite and of Go's tests, and `-tests` besides.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

var chosen = flag.String("tests", "", "Comma-separated list of the tests to run; without it all run")

func main() {
	if len(os.Args) == 2 && os.Args[1] == "images" {
		if err := listImages(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	all := []testing.InternalTest{{Name: "TestConformance", F: run}}
	testing.Main(regexp.MatchString, all, nil, nil)
}

func run(t *testing.T) {
	if *chosen != "" {
		choose(t, strings.Split(*chosen, ","))
	}
	conformance.RunConformance(t)
}

// choose leaves the named tests in the suite. The suite itself can be told one test, or those it is to skip.
func choose(t *testing.T, names []string) {
	is := func(name string) func(suite.ConformanceTest) bool {
		return func(test suite.ConformanceTest) bool { return test.ShortName == name }
	}
	for _, name := range names {
		if !slices.ContainsFunc(tests.ConformanceTests, is(name)) {
			t.Fatalf("the suite has no test %q", name)
		}
	}
	tests.ConformanceTests = slices.DeleteFunc(tests.ConformanceTests, func(test suite.ConformanceTest) bool {
		return !slices.Contains(names, test.ShortName)
	})
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
