// Renders templates with Go's own text/template and sprig, for comparison.
//
// One request per line on standard input, one answer per line on standard output, both JSON. Texts travel in base64,
// because a Go string may hold any bytes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

type request struct {
	// Templates by name; "main" is rendered.
	Templates map[string]string `json:"templates"`
	Data      any               `json:"data"`
	Missing string `json:"missing"`
	// "builtin", "sprig" or "helm".
	Functions string `json:"functions"`
}

type answer struct {
	Output []byte `json:"output"`
	Parse  string `json:"parse,omitempty"`
	Error  string `json:"error,omitempty"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		var a answer
		if err := json.Unmarshal(line, &r); err != nil {
			a.Error = "request: " + err.Error()
		} else {
			a = render(r)
		}
		text, err := json.Marshal(a)
		if err != nil {
			text = []byte(`{"error":"answer: cannot be encoded"}`)
		}
		out.Write(text)
		out.WriteByte('\n')
		out.Flush()
	}
}

func render(r request) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a.Error = fmt.Sprintf("panic: %v", p)
		}
	}()
	t := template.New("set")
	if r.Missing != "" {
		t.Option("missingkey=" + r.Missing)
	}
	switch r.Functions {
	case "sprig":
		t.Funcs(sprig.TxtFuncMap())
	case "helm":
		t.Funcs(sprig.TxtFuncMap())
		t.Funcs(helm(t, r.Missing))
	}
	for name, text := range r.Templates {
		if _, err := t.New(name).Parse(text); err != nil {
			a.Parse = err.Error()
			return a
		}
	}
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, "main", r.Data); err != nil {
		a.Error = err.Error()
		return a
	}
	a.Output = []byte(b.String())
	return a
}

// helm has what Helm adds to sprig, with Helm's observable behaviour.
func helm(t *template.Template, missing string) template.FuncMap {
	include := func(t *template.Template) func(string, any) (string, error) {
		return func(name string, data any) (string, error) {
			var b strings.Builder
			err := t.ExecuteTemplate(&b, name, data)
			return b.String(), err
		}
	}
	var tpl func(parent *template.Template) func(string, any) (string, error)
	tpl = func(parent *template.Template) func(string, any) (string, error) {
		return func(text string, data any) (string, error) {
			t, err := parent.Clone()
			if err != nil {
				return "", err
			}
			if missing != "" {
				t.Option("missingkey=" + missing)
			}
			t.Funcs(template.FuncMap{"include": include(t), "tpl": tpl(t)})
			t, err = t.New(parent.Name()).Parse(text)
			if err != nil {
				return "", fmt.Errorf("cannot parse template %q: %w", text, err)
			}
			var b strings.Builder
			if err := t.Execute(&b, data); err != nil {
				return "", fmt.Errorf("error during tpl function execution for %q: %w", text, err)
			}
			return strings.ReplaceAll(b.String(), "<no value>", ""), nil
		}
	}
	return template.FuncMap{
		"include": include(t),
		"tpl":     tpl(t),
		"toYaml": func(v any) string {
			text, err := yaml.Marshal(v)
			if err != nil {
				return ""
			}
			return strings.TrimSuffix(string(text), "\n")
		},
		"fromYaml": func(text string) map[string]any {
			m := map[string]any{}
			if err := yaml.Unmarshal([]byte(text), &m); err != nil {
				m["Error"] = "error"
			}
			return m
		},
		"fromYamlArray": func(text string) []any {
			a := []any{}
			if err := yaml.Unmarshal([]byte(text), &a); err != nil {
				a = []any{"error"}
			}
			return a
		},
		"toJson": func(v any) string {
			text, err := json.Marshal(v)
			if err != nil {
				return ""
			}
			return string(text)
		},
		"fromJson": func(text string) map[string]any {
			m := map[string]any{}
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				m["Error"] = "error"
			}
			return m
		},
		"fromJsonArray": func(text string) []any {
			a := []any{}
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				a = []any{"error"}
			}
			return a
		},
		"required": func(message string, v any) (any, error) {
			if v == nil || v == "" {
				return v, errors.New(message)
			}
			return v, nil
		},
	}
}
