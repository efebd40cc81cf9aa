# The program `fourfold`. Its commands are a library, so that tests call them without a command line; CLI11 is needed by
# the program's own files alone.
find_path(FOURFOLD_CLI11 CLI/CLI.hpp HINTS ${FOURFOLD_BUNDLE} ${FOURFOLD_BUNDLE}/include)

# The planner's command: links no machine, so it is built in seconds.
add_library(fourfold_cli_plan STATIC
  ${PROJECT_SOURCE_DIR}/src/cli/console.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/figures.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/parse.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/plan_command.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/terminal_text.cpp)
target_link_libraries(fourfold_cli_plan PUBLIC fourfold_row_table fourfold_kernels_choose)
fourfold_precompile(fourfold_cli_plan fourfold_base)

add_custom_target(fourfold_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
    -DOUTPUT=${CMAKE_BINARY_DIR}/generated/commit.h -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/commit.h
  COMMENT "")

# What the program is, for every command that writes a report.
add_library(fourfold_build_info STATIC ${PROJECT_SOURCE_DIR}/src/cli/build_info.cpp)
target_include_directories(fourfold_build_info PRIVATE ${CMAKE_BINARY_DIR}/generated)
add_dependencies(fourfold_build_info fourfold_commit)
target_link_libraries(fourfold_build_info PUBLIC fourfold_options fourfold_base)
add_library(fourfold_cli STATIC
  ${PROJECT_SOURCE_DIR}/src/cli/bench_all_reduce_command.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/bench_moe_command.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/bench_pack_command.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/progress.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/verify_command.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/verify_report.cpp)
target_link_libraries(fourfold_cli PUBLIC fourfold_cli_plan fourfold_gpu fourfold_build_info)
fourfold_precompile(fourfold_cli fourfold_base)

# Commands that take a MODEL. Without the model floor they are known, and say why they cannot run.
if(FOURFOLD_HAS_MODEL_FLOOR)
  add_library(fourfold_cli_model STATIC
    ${PROJECT_SOURCE_DIR}/src/cli/answer.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_gpu_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_load_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_model_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_model_weights.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_mtp.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_users.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/byte_bar.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/chat_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/chat_words.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/find_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/file_signals.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/interrupt.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/line_reader.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/load_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/plan_model_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/predict_report.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/step_report.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/run_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/serve_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/transcript.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/word_wrap.cpp)
  target_link_libraries(fourfold_cli_model PUBLIC fourfold_cli_plan fourfold_gpu fourfold_build_info fourfold_model
    fourfold_engine fourfold_server fourfold_library)
  # The line editor of `fourfold chat`. (BSD licence; GNU readline's would not go with ours.)
  set(FOURFOLD_EDIT "auto" CACHE STRING "auto: edit lines of chat by libedit when it is found; off: never")
  find_path(FOURFOLD_EDIT_INCLUDE histedit.h)
  find_library(FOURFOLD_EDIT_LIBRARY edit)
  if(FOURFOLD_EDIT AND FOURFOLD_EDIT_INCLUDE AND FOURFOLD_EDIT_LIBRARY)
    target_sources(fourfold_cli_model PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/kept_history.cpp
      ${PROJECT_SOURCE_DIR}/src/cli/line_editor.cpp)
    target_include_directories(fourfold_cli_model SYSTEM PRIVATE ${FOURFOLD_EDIT_INCLUDE})
    target_link_libraries(fourfold_cli_model PRIVATE ${FOURFOLD_EDIT_LIBRARY})
    message(STATUS "fourfold: lines of chat are edited by libedit")
  else()
    target_sources(fourfold_cli_model PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/line_editor_none.cpp)
    message(WARNING "fourfold: libedit was not found (Debian: libedit-dev), or FOURFOLD_EDIT is off: `fourfold chat` is built "
      "without a line editor, so no arrows, no history, and a paste of many lines is many messages")
  endif()
  fourfold_precompile(fourfold_cli_model fourfold_base)
else()
  add_library(fourfold_cli_model STATIC ${PROJECT_SOURCE_DIR}/src/cli/model_floor_none.cpp)
  target_link_libraries(fourfold_cli_model PUBLIC fourfold_cli_plan)
endif()
target_link_libraries(fourfold_cli PUBLIC fourfold_cli_model)
if(FOURFOLD_HAS_MODEL_FLOOR)
  target_sources(fourfold_cli PRIVATE
    ${PROJECT_SOURCE_DIR}/src/cli/bench_serve_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/compare_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/diff_backends_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/doctor_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/doctor_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/inspect_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/make_model_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/perplexity_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/quantize_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_device.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_file.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_headline.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_models.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_parts.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_prediction.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_status.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/report_verify.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/run_apart.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/serve_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/tune_command.cpp)
  target_link_libraries(fourfold_cli PUBLIC fourfold_evaluate fourfold_doctor fourfold_server fourfold_loadgen)
endif()

if(FOURFOLD_CLI11)
  add_executable(fourfold ${PROJECT_SOURCE_DIR}/src/cli/main.cpp ${PROJECT_SOURCE_DIR}/src/cli/usage.cpp)
  foreach(part checkpoint measure plan serve talk)
    target_sources(fourfold PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/command_line_${part}.cpp)
  endforeach()
  target_link_libraries(fourfold PRIVATE fourfold_cli)
  # As a system header: its warnings are not ours.
  target_include_directories(fourfold SYSTEM PRIVATE ${FOURFOLD_CLI11})
else()
  message(WARNING "fourfold: the header CLI/CLI.hpp (CLI11) was not found, so the program `fourfold` is NOT built; "
    "libraries and tests are. Install libcli11-dev (Debian, Ubuntu), cli11-devel (Fedora) or cli11 (Arch, Homebrew), or "
    "give a folder written by ./dev bundle: -DFOURFOLD_BUNDLE=DIR")
endif()
