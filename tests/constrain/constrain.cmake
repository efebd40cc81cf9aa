# The golden tokenizers, of which tests/text unpacks the large one.
target_compile_definitions(test_constrain PRIVATE FOURFOLD_TEXT_GOLDEN="${text_golden}"
  FOURFOLD_TEXT_UNPACKED="${text_unpacked}")
