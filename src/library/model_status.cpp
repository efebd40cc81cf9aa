#include "library/model_status.h"

#include "base/json_writer.h"

namespace fourfold::library {

std::string model_status(const engine::EngineStatus& s, std::int64_t context,
                         const events::Publisher* publisher) {
  JsonWriter json;
  json.begin_object().member("context", context);
  json.key("sequences").begin_object().member("running", s.running).member("waiting", s.waiting);
  json.member("running_max", s.sequence_limit).member("waiting_max", s.queue_limit).end_object();
  json.key("pages").begin_object().member("used", s.pages_used - s.pages_cached);
  json.member("cached", s.pages_cached)
      .member("all", s.page_count)
      .member("tokens", s.page_tokens)
      .end_object();
  json.key("tokens").begin_object().member("prompt", s.prompt_tokens).member("cached", s.cached_tokens);
  json.member("answer", s.answer_tokens).member("per_second", s.tokens_per_second).end_object();
  json.key("prefix_cache").begin_object().member("lookups", s.prefix_lookups);
  json.member("hits", s.prefix_hits).end_object();
  json.key("requests").begin_object().member("finished", s.finished).member("cancelled", s.cancelled);
  json.member("failed", s.failed).member("refused", s.refused).member("preempted", s.preempted).end_object();
  json.member("fault", s.fault);
  json.key("kv_events");
  if (publisher == nullptr) return json.value(nullptr).end_object().finish();
  const events::PublisherCounts counts = publisher->counts();
  json.begin_object().member("endpoint", publisher->endpoint());
  json.member("replay_endpoint", publisher->replay_endpoint()).member("batches", counts.batches);
  json.member("dropped", counts.dropped).member("subscribers", counts.subscribers);
  json.member("subscriber_dropped", counts.subscriber_dropped).member("replays", counts.replays).end_object();
  return json.end_object().finish();
}

}  // namespace fourfold::library
