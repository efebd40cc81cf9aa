// Any bytes as the body of a request, on every route: refused with an Error, or answered with bytes that are
// JSON, whole or in events. The first byte chooses the route; the rest is the body.
#include <cstdio>
#include <cstdlib>

#include "server/api/form_cache.h"
#include "server/exchange.h"
#include "server/text_routes.h"
#include "text/jinja/json_value.h"

namespace {

using namespace fourfold;

server::ServedModel load() {
  // tests/fuzz/fuzz.cmake says where the folder is.
  const std::string golden = std::getenv("FOURFOLD_FUZZ_TEXT");
  server::ServedModel out{.names = {"tiny"},
                          .created = 0,
                          .tokenizer = text::Tokenizer::load(golden + "/qwen35.tokenizer.json"),
                          .chat_template = {},
                          .limits = {.vocab_size = 1024, .position_limit = 4096, .can_draft = false},
                          .defaults = {},
                          .stop_ids = {901}};
  std::FILE* file = std::fopen((golden + "/templates/tool_xml.jinja").c_str(), "rb");
  if (file == nullptr) std::abort();
  std::string source(1 << 16, '\0');
  source.resize(std::fread(source.data(), 1, source.size(), file));
  std::fclose(file);
  out.chat_template = text::ChatTemplate::parse(source, "chat_template.jinja");
  out.token_limit = out.tokenizer.id_limit();
  server::api::prepare_forms(out);
  return out;
}

void require_json(std::string_view text, const char* what) {
  text::jinja::parse_json(text, what, text::jinja::JsonRules::request);
}

void require_events(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find("\n\n", at);
    if (end == std::string_view::npos) std::abort();
    std::string_view event = bytes.substr(at, end - at);
    at = end + 2;
    if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
    if (!event.starts_with("data: ")) std::abort();
    if (event != "data: [DONE]") require_json(event.substr(6), "event");
  }
}

void answer(server::Exchange& exchange, const server::ServedModel& model, std::string_view text) {
  const auto submissions = exchange.submissions();
  std::string bytes;
  for (std::size_t choice = 0; choice < submissions.size(); ++choice) {
    engine::Delivery delivery;
    for (const text::TokenId id : model.tokenizer.encode(text)) {
      sample::Sampled token{.token = id, .draft_accepted = false, .logprobs = {}};
      if (submissions[choice].request.params.logprob_count > 0)
        token.logprobs = sample::Logprobs{{id, -1}, {{id, -1}}};
      delivery.tokens.push_back(token);
    }
    delivery.finish = choice % 2 == 0 ? engine::Finish::max_tokens : engine::Finish::stop_id;
    bytes += exchange.take(choice, delivery);
  }
  if (!exchange.done()) std::abort();
  if (exchange.streams())
    require_events(bytes);
  else
    require_json(exchange.body(), "answer");
}

void serve(std::string_view route, std::string_view body, const server::ServedModel& model) {
  server::api::Notes notes;
  if (route == "/tokenize") {
    const server::LongAnswer tokens = server::tokenize_answer(body, model, notes);
    std::string whole;
    for (std::string piece = tokens.more(); !piece.empty(); piece = tokens.more()) whole += piece;
    return require_json(whole, "tokens");
  }
  if (route == "/detokenize") return require_json(server::detokenize_answer(body, model, notes), "text");
  const auto exchange = server::make_exchange(route, body, model);
  answer(*exchange, model,
         "so</think>\n<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\nend");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const server::ServedModel model = load();
  static constexpr const char* routes[] = {
      "/v1/chat/completions",      "/v1/completions", "/v1/responses", "/v1/messages",
      "/v1/messages/count_tokens", "/tokenize",       "/detokenize",   "/v1/nothing"};
  if (size == 0) return 0;
  const char* route = routes[data[0] % 8];
  try {
    serve(route, {reinterpret_cast<const char*>(data) + 1, size - 1}, model);
  } catch (const Error& error) {
    const server::HttpError refused = server::error_answer(route, error);
    require_json(refused.body, "refusal");
    if (refused.status < 400 || refused.status >= 500) std::abort();
  }
  return 0;
}
