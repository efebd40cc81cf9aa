/* libfourfold_engine for C: open a model folder and have text generated, by many threads at once.
 *
 * The boundary. The library owns one kind of handle, a model: a loaded checkpoint, its tokenizer, and an
 * engine with a thread of its own. fourfold_generate may be called from any number of threads with the same
 * model; their sequences share the engine's steps, and each gets the tokens it would get alone.
 *
 * Errors. Every function that can fail returns a fourfold_status (fourfold_kernels.h). The sentence that goes
 * with the last failure on the calling thread is fourfold_last_error(); it names the numbers, and the next
 * step where there is one. The library never aborts on bad input.
 *
 * Versions. Option structs begin with struct_size, set by FOURFOLD_INIT. A library accepts the structs of
 * older headers, and of newer ones as long as the members it does not know are zero.
 *
 * C11, and C++ (which has fourfold/engine.h as well).
 */
#ifndef FOURFOLD_H
#define FOURFOLD_H

#include <fourfold/fourfold_kernels.h>

/* Major * 10000 + minor * 100 + patch. */
#define FOURFOLD_VERSION 100

#if defined(__cplusplus)
extern "C" {
#endif

/* The version of the library that was loaded; compare with FOURFOLD_VERSION. Any thread. */
FOURFOLD_API uint32_t fourfold_version(void);

/* What went wrong in the last failed call of this thread; empty if none has failed. The text is the library's
 * and stays until the thread's next failure. Any thread. */
FOURFOLD_API const char* fourfold_last_error(void);

typedef struct fourfold_model fourfold_model;

/* Text as it comes: whole UTF-8 characters, not zero-terminated, valid during the call. Anything but 0: no
 * more is wanted. */
typedef int32_t (*fourfold_on_text)(void* user, const char* text, size_t byte_count);

/* How many bytes of weights have been read; comes from threads of the library, one at a time. Anything but 0:
 * the load is given up. */
typedef int32_t (*fourfold_on_progress)(void* user, uint64_t bytes_done, uint64_t bytes_total);

typedef struct fourfold_model_options {
  uint32_t struct_size;
  int32_t threads;         /* cpu: 0 is one for each core */
  const char* backend;     /* "cpu", "cuda", "sim", "reference"; null is "cpu" */
  int64_t max_context;     /* tokens of prompt and answer; 0: the model's limit, but at most 8,192 */
  int64_t max_sequences;   /* run at once; 0: 4 */
  int32_t mtp_plus_one;    /* 0: as many drafts as pay; n + 1: n drafts a step, 0 to 5 */
  int32_t no_prefix_cache; /* 1: prefixes are not shared */
  /* Words and meanings of `fourfold serve`; null and 0 are its defaults. */
  const char* experts;        /* of several ranks: "tp", "ep" or "auto" */
  const char* activations;    /* "f32", "w4a16", "w4a4-prefill", "w4a4", "w8a8" or "auto" */
  const char* kv;             /* keys and values: "bf16", "fp8" or "auto" */
  const char* dense;          /* cuda, sim: "fp8", "nvfp4" quantise 16-bit matrices at load; "keep" */
  const char* cache;          /* cuda, sim: a folder for packed copies, for the next start */
  const char* tuned;          /* cuda, sim: a tuning file, or "none" */
  double memory_fraction;     /* cuda: of the GPU's memory, what may be used */
  int64_t kv_tokens;          /* that all sequences have room for, together */
  int64_t step_rows;          /* rows of one step, prompt and generated together */
  int64_t max_queue;          /* waiting; one more is refused */
  int32_t tp;                 /* ranks that hold a part of the model each: GPUs, or parts of a CPU */
  int32_t strict;             /* 1: what would be a notice is an error */
  int32_t rebuild_cache;      /* 1: the packed copy in the cache is written anew */
  int32_t reserved;           /* 0 */
  int64_t prefix_cache_bytes; /* of recurrent states */
  /* While it opens: facts, and notices of what is slower or weaker than asked for (what it gives back is
   * ignored); and how far it is. */
  fourfold_on_text on_text;
  fourfold_on_progress on_progress;
  void* user; /* handed to both */
  /* Tells routers which prefixes are cached, in vLLM's words over ZeroMQ's wire; null: nobody is told. */
  const char* kv_events;        /* "tcp://[::]:5557" listens, "tcp://HOST:PORT" connects */
  const char* kv_events_replay; /* where missed events are asked for */
  const char* kv_events_topic;
} fourfold_model_options;

/* Loads a model; options may be null. Any thread. */
FOURFOLD_API fourfold_status fourfold_model_open(const char* folder, const fourfold_model_options* options,
                                                 fourfold_model** model);

/* Ends what is still running and lets go of everything. No call may use the model now or later. Null is
 * ignored. */
FOURFOLD_API void fourfold_model_close(fourfold_model* model);

typedef struct fourfold_generate_options {
  uint32_t struct_size;
  int32_t is_chat;          /* 1: the prompt is a user's message, put through the model's chat template */
  int64_t max_tokens;       /* 0: 256 */
  const char* system;       /* chat: the system message; may be null */
  const char* const* stops; /* stop_count strings that end the answer */
  uint64_t stop_count;
  uint64_t seed; /* used where has_seed is 1; else one is drawn */
  int32_t has_seed;
  int32_t has_temperature; /* 0: the model's own suggestion */
  double temperature;      /* 0: always the most probable token */
} fourfold_generate_options;

typedef enum fourfold_end {
  FOURFOLD_END_STOP = 0,       /* the model ended it, or a stop string did */
  FOURFOLD_END_MAX_TOKENS = 1, /* it was cut there */
  FOURFOLD_END_CANCELLED = 2   /* the callback said so */
} fourfold_end;

typedef struct fourfold_generate_result {
  uint32_t struct_size;
  int32_t end; /* a fourfold_end */
  int64_t prompt_tokens;
  int64_t cached_tokens; /* of the prompt, not run again */
  int64_t answer_tokens;
} fourfold_generate_result;

/* Generates until the end; options, on_text and result may be null. What a chat model thinks before it speaks
 * is not among the text. Any thread. */
FOURFOLD_API fourfold_status fourfold_generate(fourfold_model* model, const char* prompt,
                                               const fourfold_generate_options* options,
                                               fourfold_on_text on_text, void* user,
                                               fourfold_generate_result* result);

typedef struct fourfold_request_options {
  uint32_t struct_size;
  int32_t reserved; /* 0 */
  /* The answer's JSON in one piece; of a request that says "stream": true the events as they come, whole
   * ones, as a server would send them. Anything but 0: no more is wanted. */
  fourfold_on_text on_answer;
  /* What the request asks and does not get, "tools[].type=web_search"; what it gives back is ignored. Null:
   * such a request is refused. */
  fourfold_on_text on_note;
  void* user; /* handed to both */
} fourfold_request_options;

/* A request in the words of the server's protocols, answered without a server: everything `fourfold serve`
 * can do, chat templates, tools, structured output, log-probabilities and the rest (docs/serving.md). route
 * is
 * "/v1/chat/completions", "/v1/completions", "/v1/responses" or "/v1/messages", body the request's JSON.
 * Any thread. */
FOURFOLD_API fourfold_status fourfold_request(fourfold_model* model, const char* route, const char* body,
                                              const fourfold_request_options* options);

/* How the model is doing, as JSON in one piece: sequences, pages, tokens, prefix cache, and where its events
 * are. Any thread. */
FOURFOLD_API fourfold_status fourfold_model_status(fourfold_model* model, fourfold_on_text on_text,
                                                   void* user);

#if defined(__cplusplus)
}
#endif
#endif
