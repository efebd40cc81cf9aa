// `fourfold serve`: a model behind HTTP for many users at once, until a signal ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "library/backend_options.h"

namespace fourfold::cli {

struct ServeOptions {
  std::string model;
  std::string config;  // a file with the rest; command_line_config.cpp reads it
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: one that is free
  std::vector<std::string> api_keys, api_key_files, operator_key_files;
  bool no_auth = false;
  std::vector<std::string> served_names;
  std::string mtp = "auto";                 // 0 to 5, or auto
  std::optional<std::int64_t> max_context;  // tokens of prompt and answer of one request
  std::optional<std::int64_t> kv_tokens;    // that all requests have room for, together
  std::int64_t max_sequences = 0;           // 0: chosen
  std::int64_t max_queue = 1024;
  std::int64_t step_rows = 0;         // 0: chosen
  std::int64_t prefix_cache_mb = -1;  // of recurrent states; 0: no prefix cache; -1: chosen
  double request_timeout = 0;         // seconds; 0: none
  double grace = 30;                  // seconds, after a signal
  double stall_timeout = 0;           // seconds of one step until /health says no; 0: chosen
  std::string tls_cert, tls_key;
  std::vector<std::string> cors_origins, allowed_hosts;
  double rate_limit = 0;  // requests a second for each key
  int max_body_mb = 32;
  int store_responses_mb = 64;  // responses kept for previous_response_id; 0: none
  bool log_requests = false;
  std::string kv_events, kv_events_replay, kv_events_topic, kv_events_format = "map";
  std::int64_t kv_events_buffer = 10'000;
  // Ranks on other machines: hosts with commas between, or by-hand; empty: all ranks are in this process.
  std::string nodes;
  std::string rank_listen, token_file, rank_program = "fourfold", collective = "auto";
  library::BackendOptions backend;
};

int run_serve(const ServeOptions& options, const Console& console);

}  // namespace fourfold::cli
