#include "server/status_json.h"

#include "base/json_writer.h"

namespace fourfold::server {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void write_engine(JsonWriter& json, const engine::EngineStatus& s) {
  json.key("sequences").begin_object();
  json.member("running", s.running).member("waiting", s.waiting);
  json.member("running_max", s.sequence_limit).member("waiting_max", s.queue_limit).end_object();
  json.key("pages").begin_object();
  // The engine counts the pages of prefixes among the used ones.
  json.member("used", s.pages_used - s.pages_cached)
      .member("cached", s.pages_cached)
      .member("all", s.page_count)
      .end_object();
  json.key("anchors").begin_object().member("count", s.anchors);
  json.member("bytes", s.anchor_bytes).member("bytes_max", s.anchor_byte_limit).end_object();
  json.key("tokens").begin_object().member("prompt", s.prompt_tokens).member("cached", s.cached_tokens);
  json.member("answer", s.answer_tokens).member("per_second", s.tokens_per_second).end_object();
  json.key("prefix_cache").begin_object().member("lookups", s.prefix_lookups).member("hits", s.prefix_hits);
  json.member("hit_rate", share(s.prefix_hits, s.prefix_lookups));
  json.member("token_hit_rate", share(s.cached_tokens, s.prompt_tokens)).end_object();
  json.key("mtp").begin_object().member("drafts", s.mtp).member("verified", s.drafts.verified);
  json.member("accepted", s.drafts.accepted);
  json.member("acceptance", share(s.drafts.accepted, s.drafts.verified)).end_object();
  json.key("requests").begin_object().member("finished", s.finished).member("cancelled", s.cancelled);
  json.member("failed", s.failed).member("refused", s.refused).member("preempted", s.preempted).end_object();
  json.key("steps").begin_object().member("count", s.steps).member("seconds", s.step_seconds);
  json.member("overhead_seconds", s.overhead_seconds).end_object();
}

void write_texts(JsonWriter& json, std::string_view name, const std::vector<std::string>& texts) {
  json.key(name).begin_array();
  for (const std::string& text : texts) json.value(text);
  json.end_array();
}

}  // namespace

std::string version_json(const ServerFacts& facts) {
  JsonWriter json;
  json.begin_object().member("version", facts.version).member("commit", facts.commit);
  return json.member("backend", facts.backend).end_object().finish();
}

std::string server_info_json(const engine::EngineStatus& status, const ServerFacts& facts,
                             const ServedModel& model) {
  JsonWriter json;
  json.begin_object().member("served_model_name", model.names.front()).member("model_path", facts.model);
  json.member("context_length", model.limits.position_limit);
  json.member("max_running_requests", status.sequence_limit);
  json.member("max_total_num_tokens", status.page_count * status.page_tokens);
  json.member("page_size", status.page_tokens).member("version", facts.version);
  return json.end_object().finish();
}

std::string load_json(const engine::EngineStatus& status) {
  JsonWriter json;
  json.begin_array().begin_object().member("dp_rank", 0);
  json.member("num_reqs", status.running + status.waiting).member("num_waiting_reqs", status.waiting);
  json.member("num_tokens", (status.pages_used - status.pages_cached) * status.page_tokens);
  return json.end_object().end_array().finish();
}

std::string status_json(const engine::EngineStatus& status, const Metrics& metrics, const HttpCounts& counts,
                        const ServerFacts& facts, const ServedModel& model) {
  JsonWriter json;
  json.begin_object();
  json.key("model").begin_object().member("name", model.names.front()).member("source", facts.model);
  json.member("context", model.limits.position_limit).end_object();
  json.key("program").begin_object().member("version", facts.version).member("commit", facts.commit);
  json.member("backend", facts.backend).member("device", facts.device).end_object();
  write_engine(json, status);
  json.key("latency").begin_object();
  json.member("first_token_p50", metrics.first_token.quantile(.5));
  json.member("first_token_p99", metrics.first_token.quantile(.99));
  json.member("between_tokens_p50", metrics.between_tokens.quantile(.5));
  json.member("between_tokens_p99", metrics.between_tokens.quantile(.99)).end_object();
  json.key("http").begin_object().member("connections", counts.connections_open);
  json.member("slow_readers", counts.slow_readers).member("timed_out", counts.timed_out);
  json.member("malformed", counts.malformed).member("refused_keys", metrics.refused_keys);
  json.member("rate_limited", metrics.rate_limited).end_object();
  json.key("memory").begin_array();
  for (const backend::MemoryUse& use : facts.memory)
    json.begin_object().member("what", use.what).member("bytes", use.bytes).end_object();
  json.end_array();
  json.key("process").begin_object().member("resident_bytes", resident_bytes());
  json.member("open_files", open_descriptors()).end_object();
  write_texts(json, "kernels", facts.kernels ? facts.kernels->all() : std::vector<std::string>{});
  write_texts(json, "notices", facts.notices);
  return json.end_object().finish();
}

}  // namespace fourfold::server
