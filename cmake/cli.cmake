# The program `fourfold`. Its commands are a library, so that tests call them without a command line; CLI11 is needed by
# the program's own files alone.
find_path(FOURFOLD_CLI11 CLI/CLI.hpp HINTS ${FOURFOLD_BUNDLE} ${FOURFOLD_BUNDLE}/include)

# What every command prints with.
add_library(fourfold_cli_console STATIC
  ${PROJECT_SOURCE_DIR}/src/cli/console.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/figures.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/parse.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/progress.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/terminal_text.cpp)
target_link_libraries(fourfold_cli_console PUBLIC fourfold_options fourfold_base)
fourfold_precompile(fourfold_cli_console fourfold_base)

# The planner's command: links no machine, so it is built in seconds.
add_library(fourfold_cli_plan STATIC ${PROJECT_SOURCE_DIR}/src/cli/plan_command.cpp)
target_link_libraries(fourfold_cli_plan PUBLIC fourfold_cli_console fourfold_row_table fourfold_kernels_choose)
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
  ${PROJECT_SOURCE_DIR}/src/cli/verify_command.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/verify_report.cpp)
target_link_libraries(fourfold_cli PUBLIC fourfold_cli_plan fourfold_gpu fourfold_build_info)

# Commands that take a MODEL. Without the model floor they are known, and say why they cannot run.
if(FOURFOLD_HAS_MODEL_FLOOR)
  # Those that answer: run, chat and serve. They know no machine, so fourfold-chat is made of them.
  add_library(fourfold_cli_talk STATIC
    ${PROJECT_SOURCE_DIR}/src/cli/answer.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/byte_bar.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/chat_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/chat_words.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/fetch_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/file_signals.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/find_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/interrupt.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/line_reader.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/load_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/rank_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/run_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/serve_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/serve_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/transcript.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/word_wrap.cpp)
  target_link_libraries(fourfold_cli_talk PUBLIC fourfold_cli_console fourfold_build_info fourfold_model fourfold_engine
    fourfold_server fourfold_library fourfold_hub)
  add_library(fourfold_cli_model STATIC
    ${PROJECT_SOURCE_DIR}/src/cli/bench_gpu_model.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_load_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_model_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_model_weights.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_mtp.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/bench_users.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/hub_commands.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/nodes_report.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/plan_model_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/predict_report.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/step_report.cpp)
  target_link_libraries(fourfold_cli_model PUBLIC fourfold_cli_plan fourfold_cli_talk fourfold_gpu)
  # The line editor of `fourfold chat`. (BSD licence; GNU readline's would not go with ours.)
  set(FOURFOLD_EDIT "auto" CACHE STRING "auto: edit lines of chat by libedit when it is found; off: never")
  find_path(FOURFOLD_EDIT_INCLUDE histedit.h)
  fourfold_find_edit(FOURFOLD_EDIT_LIBRARIES)
  if(FOURFOLD_EDIT AND FOURFOLD_EDIT_INCLUDE AND FOURFOLD_EDIT_LIBRARIES)
    target_sources(fourfold_cli_talk PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/kept_history.cpp
      ${PROJECT_SOURCE_DIR}/src/cli/line_editor.cpp)
    target_include_directories(fourfold_cli_talk SYSTEM PRIVATE ${FOURFOLD_EDIT_INCLUDE})
    target_link_libraries(fourfold_cli_talk PRIVATE ${FOURFOLD_EDIT_LIBRARIES})
    message(STATUS "fourfold: lines of chat are edited by libedit")
  else()
    set(FOURFOLD_EDIT_LIBRARIES)
    target_sources(fourfold_cli_talk PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/line_editor_none.cpp)
    message(WARNING "fourfold: libedit was not found (Debian: libedit-dev), or FOURFOLD_EDIT is off: `fourfold chat` is built "
      "without a line editor, so no arrows, no history, and a paste of many lines is many messages")
  endif()
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
    ${PROJECT_SOURCE_DIR}/src/cli/health_command.cpp
    ${PROJECT_SOURCE_DIR}/src/cli/hello.cpp
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
    ${PROJECT_SOURCE_DIR}/src/cli/tune_command.cpp)
  target_link_libraries(fourfold_cli PUBLIC fourfold_evaluate fourfold_doctor fourfold_server fourfold_loadgen)
  # These measure by calling other rooms: their own code is not worth more, and most begin with the same headers.
  target_compile_options(fourfold_cli_model PRIVATE -O1)
  target_compile_options(fourfold_cli PRIVATE -O1)
  fourfold_precompile(fourfold_cli_model fourfold_cli_model ${PROJECT_SOURCE_DIR}/src/backend/cuda/cuda.h
    ${PROJECT_SOURCE_DIR}/src/cli/load_model.h ${PROJECT_SOURCE_DIR}/src/json/parse.h
    ${PROJECT_SOURCE_DIR}/src/kernels/gpu/gpu.h ${PROJECT_SOURCE_DIR}/src/model/forward.h)
  fourfold_precompile(fourfold_cli fourfold_cli_model)
else()
  fourfold_precompile(fourfold_cli fourfold_base)
endif()

if(FOURFOLD_CLI11)
  fourfold_cli11_version(cli11_version ${FOURFOLD_CLI11})
  fourfold_require_version("CLI11 in ${FOURFOLD_CLI11}" "${cli11_version}" ${FOURFOLD_CLI11_MINIMUM}
    "-DFOURFOLD_CLI11=DIR names another folder with CLI/CLI.hpp")
  # Run once for a command: not worth optimising, which is half of what compiling them costs.
  function(fourfold_commands name)
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/src/cli/ OUTPUT_VARIABLE sources)
    list(TRANSFORM sources APPEND .cpp)
    add_library(${name} OBJECT ${sources})
    # As a system header: its warnings are not ours.
    target_include_directories(${name} SYSTEM PRIVATE ${FOURFOLD_CLI11})
    target_compile_options(${name} PRIVATE -O0)
    target_link_libraries(${name} PRIVATE fourfold_options)
    if(FOURFOLD_HAS_MODEL_FLOOR)
      target_link_libraries(${name} PRIVATE fourfold_boost)
    endif()
    fourfold_precompile(${name} fourfold_command_line <CLI/CLI.hpp>)
  endfunction()
  # Options from a file are TOML, by toml++ (headers alone).
  find_path(FOURFOLD_TOML toml++/toml.h HINTS ${FOURFOLD_BUNDLE} ${FOURFOLD_BUNDLE}/include)
  if(FOURFOLD_TOML)
    fourfold_toml_version(toml_version ${FOURFOLD_TOML})
    fourfold_require_version("toml++ in ${FOURFOLD_TOML}" "${toml_version}" ${FOURFOLD_TOML_MINIMUM}
      "-DFOURFOLD_TOML=DIR names another folder with toml++/toml.h")
    set(config_file config_file)
  else()
    set(config_file config_file_none)
    message(WARNING "fourfold: the header toml++/toml.h was not found (Debian: libtomlplusplus-dev): `fourfold serve --config` "
      "is left out; options come from the command line and the environment alone")
  endif()
  fourfold_commands(fourfold_command_line command_line_config command_line_serve command_line_talk completion config
    ${config_file} main usage)
  if(FOURFOLD_TOML)
    target_include_directories(fourfold_command_line SYSTEM PRIVATE ${FOURFOLD_TOML})
  endif()
  fourfold_commands(fourfold_all_commands all_commands command_line_checkpoint command_line_hub command_line_measure
    command_line_plan)
  add_executable(fourfold $<TARGET_OBJECTS:fourfold_command_line> $<TARGET_OBJECTS:fourfold_all_commands>)
  target_link_libraries(fourfold PRIVATE fourfold_cli)
  fourfold_portable(fourfold)
  if(FOURFOLD_HAS_MODEL_FLOOR)
    # These wait for people and for the engine.
    target_compile_options(fourfold_cli_talk PRIVATE -O0)
    fourfold_precompile(fourfold_cli_talk fourfold_command_line)
    include(cmake/chat.cmake)
  endif()
else()
  message(WARNING "fourfold: the header CLI/CLI.hpp (CLI11) was not found, so the program `fourfold` is NOT built; "
    "libraries and tests are. Install libcli11-dev (Debian, Ubuntu), cli11-devel (Fedora) or cli11 (Arch, Homebrew), or "
    "give a folder written by ./dev bundle: -DFOURFOLD_BUNDLE=DIR")
endif()
include(cmake/build_facts.cmake)
