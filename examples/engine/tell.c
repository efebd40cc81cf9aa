/* The engine as a C library.
 *   tell_c MODEL_FOLDER
 */
#include <fourfold/fourfold.h>
#include <stdio.h>

static int32_t show(void* user, const char* text, size_t byte_count) {
  fwrite(text, 1, byte_count, (FILE*)user);
  return 0; /* go on */
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL_FOLDER\n", argv[0]);
    return 2;
  }
  fourfold_model_options room = FOURFOLD_INIT(fourfold_model_options);
  room.max_context = 512;
  room.max_sequences = 1;
  fourfold_model* model = NULL;
  if (fourfold_model_open(argv[1], &room, &model) != FOURFOLD_OK) {
    fprintf(stderr, "%s\n", fourfold_last_error());
    return 1;
  }
  fourfold_generate_options options = FOURFOLD_INIT(fourfold_generate_options);
  options.max_tokens = 24;
  options.has_temperature = 1;
  options.temperature = 0;
  fourfold_generate_result result = FOURFOLD_INIT(fourfold_generate_result);
  const fourfold_status status =
      fourfold_generate(model, "Once upon a time", &options, show, stdout, &result);
  if (status != FOURFOLD_OK)
    fprintf(stderr, "%s\n", fourfold_last_error());
  else
    printf("\n%lld tokens after a prompt of %lld\nok\n", (long long)result.answer_tokens,
           (long long)result.prompt_tokens);
  fourfold_model_close(model);
  return status == FOURFOLD_OK ? 0 : 1;
}
