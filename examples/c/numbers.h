/* What the examples need around the library: the number formats in plain double arithmetic, a small random
 * generator, and calls that end the program with the library's sentence when they fail. */
#ifndef EXAMPLES_NUMBERS_H
#define EXAMPLES_NUMBERS_H

#include <fourfold/fourfold_kernels.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must(fourfold_status status, const char* what) {
  if (status == FOURFOLD_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, fourfold_status_name(status), fourfold_kernels_last_error());
  exit(1);
}

/* ---- number formats ---- */

static inline double e2m1(unsigned code) {
  static const double magnitude[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return code & 8u ? -magnitude[code & 7u] : magnitude[code & 7u];
}

/* Scales are positive; 0x7F is NaN and does not occur here. */
static inline double e4m3(uint8_t byte) {
  const int exponent = byte >> 3, fraction = byte & 7;
  return exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
}

static inline double bf16_value(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* Nearest even; the examples have no NaN. */
static inline uint16_t bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* ---- random ---- */

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static inline uint32_t random_bits(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32);
}
static inline float random_between(float low, float high) {
  return low + (high - low) * (float)(random_bits() >> 8) * 0x1p-24f;
}

/* ---- an NVFP4 matrix as a checkpoint stores it ---- */

typedef struct {
  int rows, columns;
  uint8_t* codes;  /* [rows, columns / 2], even column in the low nibble */
  uint8_t* scales; /* [rows, columns / 16], E4M3 */
  float global_scale;
} matrix;

static inline void* room(size_t bytes) {
  void* memory = malloc(bytes);
  if (memory == NULL) {
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    exit(1);
  }
  return memory;
}

static inline matrix random_matrix(int rows, int columns) {
  matrix m = {rows, columns, room((size_t)rows * columns / 2), room((size_t)rows * columns / 16), 0.0f};
  for (size_t i = 0; i < (size_t)rows * columns / 2; ++i) m.codes[i] = (uint8_t)random_bits();
  for (size_t i = 0; i < (size_t)rows * columns / 16; ++i)
    m.scales[i] = (uint8_t)(0x28 + random_bits() % 0x28);
  /* ModelOpt stores amax / (6 * 448), compressed-tensors its inverse; the library takes either. */
  must(fourfold_weight_scale(FOURFOLD_MODELOPT, random_between(0.01f, 0.04f), &m.global_scale),
       "weight scale");
  return m;
}
static inline void free_matrix(matrix* m) {
  free(m->codes);
  free(m->scales);
}

static inline double weight(const matrix* m, int row, int column) {
  const uint8_t pair = m->codes[((size_t)row * m->columns + column) / 2];
  const uint8_t scale = m->scales[((size_t)row * m->columns + column) / 16];
  return e2m1(column % 2 ? pair >> 4 : pair & 15u) * e4m3(scale) * m->global_scale;
}

/* A sum and how far f32 tensor cores may be from it: each of the n additions is off by at most 2^-22 of what
 * has been added so far, and that is at most the sum of the absolute products. */
typedef struct {
  double value, bound;
} estimate;

static inline estimate dot(const matrix* m, int row, const estimate* x) {
  double value = 0.0, size = 0.0, carried = 0.0;
  for (int k = 0; k < m->columns; ++k) {
    const double w = weight(m, row, k);
    value += w * x[k].value;
    size += fabs(w) * (fabs(x[k].value) + x[k].bound);
    carried += fabs(w) * x[k].bound;
  }
  return (estimate){value, carried + size * m->columns * 0x1p-22};
}

/* bf16 has eight significant bits: half a unit in the last place is 2^-8. */
static inline double bf16_rounding(double value, double bound) { return (fabs(value) + bound) * 0x1p-8; }

/* ---- device memory ---- */

static inline void* upload(fourfold_context* context, const void* data, size_t bytes) {
  void* memory = NULL;
  must(fourfold_allocate(context, bytes, &memory), "allocate");
  must(fourfold_copy_to_device(context, memory, data, bytes), "copy to the device");
  return memory;
}

/* The device named on the command line; else the first GPU, or the simulator where there is none. */
static inline fourfold_context* open_device(int argc, char** argv) {
  fourfold_context_options options = FOURFOLD_INIT(fourfold_context_options);
  fourfold_context* context = NULL;
  options.device = argc > 1 ? argv[1] : "cuda";
  fourfold_status status = fourfold_context_open(&options, &context);
  if (status == FOURFOLD_UNSUPPORTED_DEVICE && argc <= 1) {
    printf("no GPU (%s): on the simulator\n", fourfold_kernels_last_error());
    options.device = "sim:sm120";
    status = fourfold_context_open(&options, &context);
  }
  must(status, options.device);
  fourfold_context_info info = FOURFOLD_INIT(fourfold_context_info);
  must(fourfold_context_describe(context, &info), "describe");
  printf("%s\n", info.description);
  return context;
}

#endif /* EXAMPLES_NUMBERS_H */
