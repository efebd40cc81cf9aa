/* All that the server can do, without a server: a request in the words of OpenAI's chat completions, and an
 * answer that has the form of a JSON schema.
 *   ask_c MODEL_FOLDER
 */
#include <fourfold/fourfold.h>
#include <stdio.h>

static int32_t show(void* user, const char* text, size_t byte_count) {
  fwrite(text, 1, byte_count, (FILE*)user);
  return 0; /* go on */
}

int main(int argc, char** argv) {
  static const char* const body =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Is the sea blue?\"}],"
      " \"temperature\": 0, \"max_tokens\": 200, \"enable_thinking\": false,"
      " \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"answer\", \"schema\":"
      " {\"type\": \"object\", \"properties\": {\"answer\": {\"enum\": [\"yes\", \"no\"]}},"
      "  \"required\": [\"answer\"], \"additionalProperties\": false}}}}";
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL_FOLDER\n", argv[0]);
    return 2;
  }
  fourfold_model_options room = FOURFOLD_INIT(fourfold_model_options);
  room.max_context = 512;
  room.max_sequences = 1;
  room.on_text = show; /* what opening says */
  room.user = stderr;
  fourfold_model* model = NULL;
  if (fourfold_model_open(argv[1], &room, &model) != FOURFOLD_OK) {
    fprintf(stderr, "%s\n", fourfold_last_error());
    return 1;
  }
  fourfold_request_options options = FOURFOLD_INIT(fourfold_request_options);
  options.on_answer = show;
  options.user = stdout;
  const fourfold_status status = fourfold_request(model, "/v1/chat/completions", body, &options);
  if (status != FOURFOLD_OK)
    fprintf(stderr, "%s\n", fourfold_last_error());
  else
    printf("\nok\n");
  fourfold_model_close(model);
  return status == FOURFOLD_OK ? 0 : 1;
}
