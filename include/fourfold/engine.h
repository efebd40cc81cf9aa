// libfourfold_engine for C++: open a model folder and have text generated, by many threads at once.
//
// The boundary. A Model is a loaded checkpoint, its tokenizer, and an engine with a thread of its own. Calls
// of generate and chat may come from any number of threads; their sequences share the engine's steps, and
// each gets the tokens it would get alone. Errors are thrown as Failure. fourfold.h is the same for C.
//
// The library and its caller must agree about std::string and std::function: build both with compilers of one
// C++ ABI (any g++ since 5, clang with libstdc++). The C header has no such condition.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__GNUC__)
#define FOURFOLD_LIBRARY __attribute__((visibility("default")))
#else
#define FOURFOLD_LIBRARY
#endif

namespace fourfold::library {

// What went wrong, with the numbers; what can be done about it, or nothing.
class FOURFOLD_LIBRARY Failure : public std::runtime_error {
 public:
  Failure(std::string code, const std::string& message, std::string hint);
  ~Failure() override;
  // "invalid_request", "bad_checkpoint", "over_capacity" ...
  const std::string& code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  std::string code_, hint_;
};

// The words are those of `fourfold serve`; docs/serving.md has more about each.
struct ModelOptions {
  std::string backend = "cpu";   // cpu, cuda (a build with CUDA, on a GPU), sim, reference
  int threads = 0;               // cpu: 0 is one for each core
  int tp = 1;                    // ranks that hold a part of the model each: GPUs, or parts of a CPU
  std::string experts = "auto";  // of several ranks: tp (a part of each expert), ep (some of the experts)
  // f32, w4a16, w4a4-prefill, w4a4, w8a8; auto: as checkpoint and chip are made
  std::string activations = "auto";
  std::string kv = "auto";  // keys and values: bf16, fp8, or as the activations are
  // cuda and sim.
  std::string dense = "keep";  // fp8, nvfp4: quantise 16-bit matrices at load
  std::string cache = {};      // a folder for packed copies, for the next start; empty: none
  bool rebuild_cache = false;  // write the packed copy anew
  std::string tuned = {};      // a tuning file; none; empty: those of the library and of the user
  std::optional<double> memory_fraction = {};  // of the GPU's memory, what may be used
  bool strict = false;                         // what would be a notice is an error
  // Tokens of prompt and answer together; 0: the model's limit, but at most 8,192.
  std::int64_t max_context = 0;
  std::int64_t max_sequences = 4;  // run at once; others wait
  std::int64_t max_queue = 1024;   // waiting; one more is refused with over_capacity
  std::int64_t step_rows = 0;      // rows of one step, prompt and generated together; 0: chosen
  std::optional<std::int64_t> kv_tokens =
      {};                                // that all sequences have room for, together; absent: what fits
  int mtp = -1;                          // drafts a step: 0 to 5, or -1: as many as pay
  std::int64_t prefix_cache_bytes = -1;  // of recurrent states; 0: no prefix cache; -1: chosen
  // Tells routers which prefixes are cached, in vLLM's words over ZeroMQ's wire; empty: nobody is told.
  std::string kv_events = {};         // tcp://*:5557 listens, tcp://HOST:PORT connects
  std::string kv_events_replay = {};  // where missed events are asked for
  std::string kv_events_topic = {};
  // What opening says: facts, and notices of what is slower or weaker than asked for; and how far it is, from
  // threads of the library, one at a time. Both may throw, which ends it.
  std::function<void(const std::string& text)> on_text = {};
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_progress = {};
};

// What is absent comes from the model's generation_config.json; a seed is drawn.
struct GenerateOptions {
  std::int64_t max_tokens = 256;
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stops;
  std::optional<bool> thinking;  // chat: what the template is told; absent: nothing
};

struct Message {
  std::string role;  // system, user, assistant
  std::string content;
};

enum class End {
  stop,        // the model ended it, or a stop string did
  max_tokens,  // it was cut there
  cancelled,   // the callback said so
};

struct Result {
  std::string text;
  std::string thinking;  // chat: what the model thought before it spoke
  End end = End::stop;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, not run again
  std::int64_t answer_tokens = 0;
};

// What a request asked and does not get, "tools[].type=web_search".
using OnNote = std::function<void(const std::string& name)>;

class FOURFOLD_LIBRARY Model {
 public:
  explicit Model(const std::string& folder, const ModelOptions& options = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Text as it comes, whole characters, on the calling thread; false: no more is wanted.
  using OnText = std::function<bool(std::string_view piece)>;

  // Goes on with the prompt.
  Result generate(const std::string& prompt, const GenerateOptions& options = {},
                  const OnText& on_text = {}) const;
  // Answers the last message, through the model's chat template. on_text sees what is said, not what is
  // thought.
  Result chat(const std::vector<Message>& messages, const GenerateOptions& options = {},
              const OnText& on_text = {}) const;

  // A request in the words of the server's protocols, answered without a server: everything `fourfold serve`
  // can do, chat templates, tools, structured output, log-probabilities and the rest (docs/serving.md). route
  // is "/v1/chat/completions", "/v1/completions", "/v1/responses" or "/v1/messages"; body is the request's
  // JSON, and the answer's JSON comes back. Where the request says "stream": true nothing comes back:
  // on_event gets the events as they come, whole ones, as a server would send them; false: no more is wanted.
  // A request that would not get all it asks is refused, unless on_note is there to hear of it.
  std::string request(const std::string& route, const std::string& body, const OnText& on_event = {},
                      const OnNote& on_note = {}) const;

  // How it is doing, as JSON: sequences, pages, tokens, prefix cache, and where its events are.
  std::string status() const;

  std::vector<std::int32_t> encode(const std::string& text) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

// Major * 10000 + minor * 100 + patch of the library that was loaded.
FOURFOLD_LIBRARY std::uint32_t version();

}  // namespace fourfold::library
