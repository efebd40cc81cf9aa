// The command lines of `fourfold serve` and `fourfold rank`.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"

namespace fourfold::cli {
namespace {

void add_access(CLI::App& command, ServeOptions& o) {
  // What goes with what is checked where all of it is known, from files and the environment, too: run_serve.
  command.add_option("--api-key", o.api_keys, "Who asks must know it; may be given again")
      ->allow_extra_args(false);
  command
      .add_option("--api-key-file", o.api_key_files,
                  "Keys, one a line, read again when it changes; may be given again")
      ->allow_extra_args(false);
  command
      .add_option(
          "--operator-key-file", o.operator_key_files,
          "Keys that may read /metrics and /status.json, which others then may not; may be given again")
      ->allow_extra_args(false);
  command.add_flag("--no-auth", o.no_auth, "No key, also where other machines can reach it");
  command.add_option("--tls-cert", o.tls_cert, "Certificate chain, PEM: https");
  command.add_option("--tls-key", o.tls_key, "Its private key, PEM");
  command
      .add_option("--cors-origin", o.cors_origins, "Pages of this origin may ask, or *; may be given again")
      ->allow_extra_args(false);
  command.add_option("--allow-host", o.allowed_hosts, "A host name of this server; may be given again")
      ->allow_extra_args(false);
  command.add_option("--rate-limit", o.rate_limit, "Requests a second for each key (or address); 0: any")
      ->capture_default_str();
}

void add_room(CLI::App& command, ServeOptions& o) {
  command.add_option(
      "--max-context,--max-model-len", o.max_context,
      "Tokens of prompt and answer of one request (the model's; cpu: at most 32768, sim: 4096)");
  command.add_option("--max-sequences,--max-num-seqs", o.max_sequences,
                     "Requests that run at once (cpu 16, sim 2, cuda 64 or what fits)");
  command.add_option("--kv-tokens", o.kv_tokens, "Tokens all requests have room for together (what fits)");
  command.add_option("--max-queue", o.max_queue, "Requests that may wait; one more is refused")
      ->capture_default_str();
  command.add_option("--step-rows,--max-num-batched-tokens", o.step_rows,
                     "Tokens of one step, prompts cut to fit (cpu 256, cuda 2048, sim 64)");
  command.add_option("--prefix-cache-mb", o.prefix_cache_mb,
                     "For recurrent states of prefixes; 0: no prefix cache (chosen)");
  command.add_option("--mtp", o.mtp, "Drafts a step, 0 to 5, or auto: by load and acceptance")
      ->capture_default_str();
  command.add_option("--request-timeout", o.request_timeout, "Seconds a request may take; 0: any")
      ->capture_default_str();
  command.add_option("--max-body-mb", o.max_body_mb, "The largest request")->capture_default_str();
  command
      .add_option("--store-responses", o.store_responses_mb,
                  "MB of responses kept in memory for previous_response_id; 0: none")
      ->capture_default_str();
  command.add_option("--grace", o.grace, "Seconds for running requests after Ctrl-C or SIGTERM")
      ->capture_default_str();
  command.add_option("--stall-timeout", o.stall_timeout,
                     "Seconds of one step until /health answers 503 (cuda 30, else 300)");
}

// As vLLM names the fields of its --kv-events-config.
void add_events(CLI::App& command, ServeOptions& o) {
  command.add_option(
      "--kv-events,--kv-events-endpoint", o.kv_events,
      "Tell routers which prefixes are cached: tcp://*:5557 listens, tcp://HOST:PORT connects");
  command.add_option("--kv-events-replay-endpoint", o.kv_events_replay,
                     "Where a router asks for events it has missed: tcp://*:5558");
  command.add_option("--kv-events-topic", o.kv_events_topic,
                     "The first frame of each message, as in kv@POD@MODEL (none)");
  command.add_option("--kv-events-buffer-steps", o.kv_events_buffer, "Batches kept for a replay")
      ->capture_default_str();
  command
      .add_option("--kv-events-format", o.kv_events_format,
                  "map, as vLLM writes events now, or array, as it did before")
      ->capture_default_str();
}

void add_nodes(CLI::App& command, ServeOptions& o) {
  command.add_option(
      "--nodes", o.nodes,
      "Ranks of --tp on other machines (cpu, sim; cuda: not run on two GPUs yet): HOST,HOST to "
      "start them by ssh, localhost without, or by-hand");
  command
      .add_option(
          "--collective", o.collective,
          "How GPUs of --nodes meet: tcp, nccl (FOURFOLD_NCCL=libnccl.so.2; not run on two GPUs yet) or "
          "auto, which says what it takes")
      ->capture_default_str();
  command.add_option("--rank-listen", o.rank_listen,
                     "Where they join, HOST:PORT (0.0.0.0:4450; 127.0.0.1 where all are on localhost)");
  command.add_option("--token-file", o.token_file,
                     "What they must know to join; drawn for those that are started from here");
  command.add_option("--rank-program", o.rank_program, "fourfold on the hosts of --nodes")
      ->capture_default_str();
}

}  // namespace

void add_rank(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("rank", "One rank of a model that is served from another machine: serve --nodes");
  RankCommandOptions& o = line.rank;
  command->add_option("MODEL", o.model, "The leader's model on this machine (what the leader calls it)");
  command->add_option("--join", o.join, "The leader's HOST:PORT")->required();
  command->add_option("--token-file", o.token_file, "What leader and ranks know; -: from stdin")->required();
  command->add_option("--rank", o.rank, "Which one to be (the first that is free)");
  command->add_option("--threads", o.threads, "0: one per core")->capture_default_str();
  command->add_option("--first-cpu", o.first_cpu, "Where its threads begin, for several ranks on one machine")
      ->capture_default_str();
  command->add_option("--gpu", o.gpu, "Which GPU of this machine, where the leader's backend is cuda")
      ->capture_default_str();
  command->add_option("--wait", o.wait, "Seconds for a leader that is not there, or has no place now")
      ->capture_default_str();
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.rank.strict = line.strict;
      return run_rank(line.rank, console);
    };
  });
}

void add_serve_options(CLI::App& command, ServeOptions& o) {
  command.add_option("MODEL", o.model, kFetchedModelHelp);
  command.add_option("--config", o.config,
                     "A TOML file with options, as in: port = 8000 (also FOURFOLD_SERVE_... variables)");
  command.add_option("--host", o.host, "The address to listen on; 0.0.0.0: all of this machine")
      ->capture_default_str();
  command.add_option("--port", o.port, "0: one that is free")->capture_default_str();
  command
      .add_option("--served-model-name", o.served_names,
                  "What requests call the model; may be given again (the folder's or the hub's name)")
      ->allow_extra_args(false);
  command.add_flag("--log-requests", o.log_requests, "One line a request on stderr: when, how long, tokens");
  add_access(command, o);
  add_room(command, o);
  add_events(command, o);
  add_backend(command, o.backend);
  add_nodes(command, o);
}

void add_serve(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("serve", "A model behind HTTP: OpenAI's and Anthropic's APIs, a chat page");
  add_serve_options(*command, line.serve);
  command->final_callback([&app, &line, command] {
    take_serve_settings(*command, app, line.serve.config);
    line.run = [&line](const Console& console) {
      line.serve.backend.strict = line.strict;
      return run_serve(line.serve, console);
    };
  });
}

}  // namespace fourfold::cli
