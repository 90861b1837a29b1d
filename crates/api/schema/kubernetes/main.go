// Writes how Go encodes the Kubernetes objects that injection and installation touch: one line per field, with the names that
// templates and JSON know it by, its type, whether an empty value is left out, and how a strategic merge treats it.
//
//	go run . types.txt
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	openshiftv1 "github.com/openshift/api/apps/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// Objects whose types are written, along with every type they contain.
var roots = []any{
	corev1.Pod{}, corev1.ReplicationController{}, corev1.Service{}, corev1.List{}, corev1.ServiceAccount{}, corev1.ConfigMap{},
	appsv1.Deployment{}, appsv1.DaemonSet{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{},
	batchv1.Job{}, batchv1.CronJob{},
	autoscalingv2.HorizontalPodAutoscaler{}, policyv1.PodDisruptionBudget{},
	openshiftv1.DeploymentConfig{},
}

// Types that encode themselves, by the kind of value they become.
var scalars = map[string]string{
	"resource.Quantity":    "quantity",
	"intstr.IntOrString":   "intOrString",
	"v1.Time":              "time",
	"v1.MicroTime":         "time",
	"v1.Duration":          "string",
	"runtime.RawExtension": "any",
	"v1.FieldsV1":          "any",
}

type printer struct {
	types map[string]reflect.Type
	todo  []reflect.Type
}

// name makes a name unique where packages share one: core/v1.ObjectReference, meta/v1.ObjectMeta.
func name(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	if len(path) < 2 {
		return t.Name()
	}
	group := path[len(path)-2]
	if strings.HasPrefix(t.PkgPath(), "github.com/openshift/") {
		group += ".openshift.io"
	}
	return group + "/" + path[len(path)-1] + "." + t.Name()
}

func (p *printer) spell(t reflect.Type) string {
	if scalar, ok := scalars[t.String()]; ok {
		return scalar
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + p.spell(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + p.spell(t.Elem())
	case reflect.Map:
		return "map:" + p.spell(t.Elem())
	case reflect.Struct:
		p.add(t)
		return name(t)
	case reflect.Interface:
		return "any"
	default:
		return t.Kind().String()
	}
}

func (p *printer) add(t reflect.Type) {
	if _, seen := p.types[name(t)]; !seen {
		p.types[name(t)] = t
		p.todo = append(p.todo, t)
	}
}

func (p *printer) fields(t reflect.Type) []string {
	var lines []string
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if field.Anonymous && tag[0] == "" {
			lines = append(lines, p.fields(field.Type)...)
			continue
		}
		if tag[0] == "-" || tag[0] == "" {
			continue
		}
		line := fmt.Sprintf("\t%s %s %s", tag[0], field.Name, p.spell(field.Type))
		for _, option := range tag[1:] {
			if option == "omitempty" || option == "omitzero" {
				line += " " + option
			}
		}
		if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
			line += " patch:" + strategy
		}
		if key := field.Tag.Get("patchMergeKey"); key != "" {
			line += " key:" + key
		}
		lines = append(lines, line)
	}
	return lines
}

func main() {
	p := printer{types: map[string]reflect.Type{}}
	for _, root := range roots {
		p.add(reflect.TypeOf(root))
	}
	written := map[string][]string{}
	for len(p.todo) > 0 {
		t := p.todo[0]
		p.todo = p.todo[1:]
		written[name(t)] = p.fields(t)
	}
	names := make([]string, 0, len(written))
	for name := range written {
		names = append(names, name)
	}
	sort.Strings(names)
	var out strings.Builder
	for _, name := range names {
		out.WriteString(name + "\n" + strings.Join(written[name], "\n") + "\n")
	}
	if err := os.WriteFile(os.Args[1], []byte(out.String()), 0o644); err != nil {
		panic(err)
	}
}
