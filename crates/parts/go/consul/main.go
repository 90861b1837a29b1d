// Consul's agent and nothing else of its command line: a server for tests needs no other command, and one of the modules
// behind the others is published in a form that does not compile.
package main

import (
	"io"
	"log"
	"os"

	"github.com/hashicorp/consul/command/agent"
	"github.com/hashicorp/consul/command/cli"
	mitchellh "github.com/mitchellh/cli"
)

func main() {
	// Libraries write to the standard logger before the agent has set up its own.
	log.SetOutput(io.Discard)
	ui := &cli.BasicUI{BasicUi: mitchellh.BasicUi{Writer: os.Stdout, ErrorWriter: os.Stderr}}
	commands := mitchellh.CLI{
		Name: "consul",
		Args: os.Args[1:],
		Commands: map[string]mitchellh.CommandFactory{
			"agent": func() (mitchellh.Command, error) { return agent.New(ui), nil },
		},
	}
	status, err := commands.Run()
	if err != nil {
		ui.Error(err.Error())
	}
	os.Exit(status)
}
