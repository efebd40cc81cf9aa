#include "server/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/format.h"

namespace fourfold::server {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[40];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string labels_in_braces(std::string_view labels) {
  return labels.empty() ? "" : fourfold::format("{{}}", labels);
}

class Writer {
 public:
  Writer(std::string& out, std::string labels) : out_(out), labels_(std::move(labels)) {}
  void head(std::string_view name, std::string_view kind, std::string_view help) {
    out_ += fourfold::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
  }
  void line(std::string_view name, std::string_view labels, double value) {
    out_ += name;
    if (!labels.empty()) {
      out_ += '{';
      out_ += labels;
      out_ += '}';
    }
    out_ += ' ';
    out_ += number(value);
    out_ += '\n';
  }
  // With the model's label, as vLLM has it.
  void model(std::string_view name, std::string_view kind, std::string_view help, double value) {
    head(name, kind, help);
    line(name, labels_, value);
  }
  void own(std::string_view name, std::string_view kind, std::string_view help, double value) {
    head(name, kind, help);
    line(name, {}, value);
  }
  const std::string& labels() const { return labels_; }
  std::string& out() { return out_; }

 private:
  std::string& out_;
  std::string labels_;
};

void write_engine(Writer& w, const engine::EngineStatus& s) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  w.model("vllm:num_requests_running", "gauge", "Sequences that run.", d(s.running));
  w.model("vllm:num_requests_waiting", "gauge", "Sequences that wait.", d(s.waiting));
  const double usage = s.page_count > 0 ? d(s.pages_used - s.pages_cached) / d(s.page_count) : 0;
  w.model("vllm:kv_cache_usage_perc", "gauge", "Share of the pages that running sequences hold, 0 to 1.",
          usage);
  w.model("vllm:gpu_cache_usage_perc", "gauge", "The same by its older name, which some routers read.",
          usage);
  w.head("vllm:cache_config_info", "gauge",
         "Of the cache: tokens of a block, and how many blocks there are.");
  w.line("vllm:cache_config_info",
         w.labels() + fourfold::format(",engine=\"0\",block_size=\"{}\",num_gpu_blocks=\"{}\","
                                       "enable_prefix_caching=\"{}\"",
                                       s.page_tokens, s.page_count, s.shares_prefixes ? "True" : "False"),
         1);
  w.model("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", d(s.prompt_tokens));
  w.model("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", d(s.cached_tokens));
  w.model("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", d(s.prompt_tokens));
  w.model("vllm:generation_tokens_total", "counter", "Tokens of answers.", d(s.answer_tokens));
  w.model("vllm:num_preemptions_total", "counter", "Sequences set aside for others.", d(s.preempted));
  w.model("vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts verified.", d(s.drafts.verified));
  w.model("vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts that stood.",
          d(s.drafts.accepted));
  w.head("fourfold_pages", "gauge", "Pages of keys and values, by what they are for.");
  w.line("fourfold_pages", "state=\"used\"", d(s.pages_used - s.pages_cached));
  w.line("fourfold_pages", "state=\"cached\"", d(s.pages_cached));
  w.line("fourfold_pages", "state=\"free\"", d(s.page_count - s.pages_used));
  w.own("fourfold_window_pages", "gauge",
        "Pages of layers that see a window, reserved for all sequences that may run.", d(s.window_pages));
  w.own("fourfold_window_bytes", "gauge", "Bytes of these in a rank.", d(s.window_bytes));
  w.own("fourfold_anchor_bytes", "gauge", "Recurrent states kept for prefixes.", d(s.anchor_bytes));
  w.own("fourfold_anchor_bytes_max", "gauge", "And how many there may be.", d(s.anchor_byte_limit));
  w.own("fourfold_sequences_max", "gauge", "Sequences that may run at once.", d(s.sequence_limit));
  w.own("fourfold_queue_max", "gauge", "Sequences that may wait.", d(s.queue_limit));
  w.own("fourfold_prefix_lookups_total", "counter", "Prompts looked up.", d(s.prefix_lookups));
  w.own("fourfold_prefix_hits_total", "counter", "Prompts whose beginning was there.", d(s.prefix_hits));
  w.own("fourfold_requests_refused_total", "counter", "Sequences refused, the queue being full.",
        d(s.refused));
  w.own("fourfold_mtp_drafts", "gauge", "Drafts a step now.", d(s.mtp));
  w.own("fourfold_steps_total", "counter", "Steps.", d(s.steps));
  w.own("fourfold_step_seconds_total", "counter", "Time of all steps in the backend.", s.step_seconds);
  w.own("fourfold_overhead_seconds_total", "counter", "Time of all steps in scheduling and sampling.",
        s.overhead_seconds);
}

void write_http(Writer& w, const Metrics& m, const HttpCounts& c) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  w.head("fourfold_http_requests_total", "counter", "Requests by route and status.");
  for (const auto& [key, count] : m.requests)
    w.line("fourfold_http_requests_total",
           fourfold::format("route=\"{}\",status=\"{}\"", key.first, key.second), d(count));
  w.head("fourfold_request_notes_total", "counter", "What requests asked and were served without.");
  for (const api::NoteKind kind : api::kNoteKinds)
    w.line("fourfold_request_notes_total", fourfold::format("kind=\"{}\"", api::label_of(kind)),
           d(m.notes[static_cast<std::size_t>(kind)]));
  w.own("fourfold_http_connections", "gauge", "Connections that are open.", d(c.connections_open));
  w.own("fourfold_http_connections_total", "counter", "Connections so far.", d(c.connections));
  w.own("fourfold_http_connections_refused_total", "counter", "Beyond the limit.", d(c.connections_refused));
  w.own("fourfold_http_connections_crowded_out_total", "counter",
        "Closed, without a request, for clients that had fewer.", d(c.connections_crowded_out));
  w.own("fourfold_http_slow_readers_total", "counter", "Clients cut off that did not read.",
        d(c.slow_readers));
  w.own("fourfold_http_timed_out_total", "counter", "Requests that did not come in time.", d(c.timed_out));
  w.own("fourfold_http_malformed_total", "counter", "Requests that are no HTTP.", d(c.malformed));
  w.own("fourfold_http_received_bytes_total", "counter", "Bytes read.", d(c.bytes_in));
  w.own("fourfold_http_sent_bytes_total", "counter", "Bytes written.", d(c.bytes_out));
  w.own("fourfold_keys_refused_total", "counter", "Requests without a good key.", d(m.refused_keys));
  w.own("fourfold_rate_limited_total", "counter", "Requests beyond the rate limit.", d(m.rate_limited));
}

void write_events(Writer& w, const EventCounts& counts) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  w.own("fourfold_kv_events_total", "counter", "Batches of events published.", d(counts.batches));
  w.own("fourfold_kv_events_dropped_total", "counter",
        "Batches given up, too many being on their way; the next one says everything again.",
        d(counts.dropped));
  w.own("fourfold_kv_events_subscribers", "gauge", "Subscribers that are connected.", d(counts.subscribers));
  w.own("fourfold_kv_events_subscriber_dropped_total", "counter",
        "Batches that a subscriber did not get, being too slow.", d(counts.subscriber_dropped));
  w.own("fourfold_kv_events_replays_total", "counter", "Replays asked for.", d(counts.replays));
}

void write_workers(Writer& w, const Workers::Status& s) {
  w.own("fourfold_workers_busy", "gauge", "Threads that read a request.", static_cast<double>(s.busy));
  w.own("fourfold_worker_longest_seconds", "gauge", "How long one of them has been reading the same.",
        std::chrono::duration<double>(s.longest).count());
  w.own("fourfold_work_waiting", "gauge", "Requests that wait to be read.", static_cast<double>(s.waiting));
  w.own("fourfold_work_skipped_total", "counter", "Requests not read, their client having left.",
        static_cast<double>(s.skipped));
}

}  // namespace

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(at)];
  ++count_;
  sum_ += value;
}

double Histogram::quantile(double share) const {
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    seen += counts_[i];
    if (count_ > 0 && static_cast<double>(seen) >= share * static_cast<double>(count_)) return bounds_[i];
  }
  return count_ > 0 ? bounds_.back() : 0;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help,
                      std::string_view labels) const {
  out += fourfold::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  std::int64_t seen = 0;
  const std::string comma = labels.empty() ? "" : ",";
  for (std::size_t i = 0; i <= bounds_.size(); ++i) {
    seen += counts_[i];
    const std::string bound = i < bounds_.size() ? number(bounds_[i]) : "+Inf";
    out += fourfold::format("{}_bucket{", name) + std::string(labels) + comma +
           fourfold::format("le=\"{}\"} {}\n", bound, seen);
  }
  const std::string braces = labels_in_braces(labels);
  out += fourfold::format("{}_sum{} {}\n{}_count{} {}\n", name, braces, number(sum_), name, braces, count_);
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  return file >> all >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t open_descriptors() {
  std::error_code problem;
  std::int64_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", problem), end; !problem && at != end;
       at.increment(problem))
    ++count;
  return std::max<std::int64_t>(count - 1, 0);  // the listing's own
}

std::string prometheus_text(const Metrics& m, const engine::EngineStatus& status, const HttpCounts& counts,
                            const Workers::Status& workers, const ServerFacts& facts,
                            std::string_view model_name) {
  std::string out;
  Writer w(out, fourfold::format("model_name=\"{}\"", escaped(model_name)));
  write_engine(w, status);
  using engine::Finish;
  const auto finishes = [&](Finish finish) {
    return static_cast<double>(m.finishes[static_cast<std::size_t>(finish)]);
  };
  w.head("vllm:request_success_total", "counter", "Choices by how they ended.");
  w.line("vllm:request_success_total", w.labels() + ",finished_reason=\"stop\"", finishes(Finish::stop_id));
  w.line("vllm:request_success_total", w.labels() + ",finished_reason=\"length\"",
         finishes(Finish::max_tokens));
  w.line("vllm:request_success_total", w.labels() + ",finished_reason=\"abort\"",
         finishes(Finish::cancelled) + finishes(Finish::time_limit) + finishes(Finish::shutdown));
  w.line("vllm:request_success_total", w.labels() + ",finished_reason=\"error\"", finishes(Finish::failed));
  m.first_token.write(out, "vllm:time_to_first_token_seconds", "From request to first token.", w.labels());
  m.between_tokens.write(out, "vllm:inter_token_latency_seconds", "Between deliveries of one answer.",
                         w.labels());
  m.per_token.write(out, "vllm:request_time_per_output_token_seconds",
                    "Of each answer, without its first token.", w.labels());
  m.whole.write(out, "vllm:e2e_request_latency_seconds", "From request to last token.", w.labels());
  m.queued.write(out, "vllm:request_queue_time_seconds", "Until a sequence ran.", w.labels());
  m.prompt_tokens.write(out, "vllm:request_prompt_tokens", "Tokens of a prompt.", w.labels());
  m.answer_tokens.write(out, "vllm:request_generation_tokens", "Tokens of an answer.", w.labels());
  write_http(w, m, counts);
  write_workers(w, workers);
  if (facts.events) write_events(w, facts.events());
  w.own("fourfold_degradations", "gauge", "Notices of the start: what is slower or other than asked.",
        static_cast<double>(facts.notices.size()));
  w.head("fourfold_build_info", "gauge", "What runs here.");
  w.line("fourfold_build_info",
         fourfold::format("version=\"{}\",commit=\"{}\",backend=\"{}\"", escaped(facts.version),
                          escaped(facts.commit), escaped(facts.backend)),
         1);
  w.own("process_resident_memory_bytes", "gauge", "Memory of this process.",
        static_cast<double>(resident_bytes()));
  w.own("process_open_fds", "gauge", "Its open files and sockets.", static_cast<double>(open_descriptors()));
  return out;
}

}  // namespace fourfold::server
