// SPDX-License-Identifier: Apache-2.0

// Usage: render CHART_DIR NAMESPACE VALUES_FILE
//
// Prints what `helm template` would, for a chart that uses no more than this knows: Helm itself is in
// neither Debian nor npm. The template engine, its functions and the YAML library are Helm's own.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

// Helm's .Files: text of the chart's folder, and nothing for a file that is not there.
type files string

func (directory files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(string(directory), name))
	if err != nil {
		return ""
	}
	return string(text)
}

func read(path string) (object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	value := object{}
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return value, nil
}

// Maps are joined, anything else is replaced, and null takes a key away.
func merge(into, from object) {
	for key, value := range from {
		inner, isMap := value.(object)
		if old, wasMap := into[key].(object); isMap && wasMap {
			merge(old, inner)
		} else if value == nil {
			delete(into, key)
		} else {
			into[key] = value
		}
	}
}

func render(directory, namespace, values string) (string, error) {
	meta, err := read(filepath.Join(directory, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	all, err := read(filepath.Join(directory, "values.yaml"))
	if err != nil {
		return "", err
	}
	given, err := read(values)
	if err != nil {
		return "", err
	}
	merge(all, given)
	chart := object{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]}
	data := object{"Values": all, "Chart": chart, "Files": files(directory),
		"Release": object{"Name": meta["name"], "Namespace": namespace, "Service": "Helm"}}

	root := template.New("").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["include"] = func(name string, with interface{}) (string, error) {
		var out bytes.Buffer
		err := root.ExecuteTemplate(&out, name, with)
		return out.String(), err
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	root.Funcs(functions)
	if _, err := root.ParseGlob(filepath.Join(directory, "templates", "*")); err != nil {
		return "", err
	}
	var out bytes.Buffer
	files, err := filepath.Glob(filepath.Join(directory, "templates", "*.yaml"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		var one bytes.Buffer
		if err := root.ExecuteTemplate(&one, filepath.Base(file), data); err != nil {
			return "", err
		}
		if strings.TrimSpace(one.String()) != "" {
			fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", filepath.Base(file), one.String())
		}
	}
	return out.String(), nil
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "Usage: render CHART_DIR NAMESPACE VALUES_FILE")
		os.Exit(64)
	}
	text, err := render(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}
