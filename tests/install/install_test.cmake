# Carries out one install test. WAY: shared or static (find_package), pkg_config (both), or samples; WORK: a folder of its own,
# emptied first.

# run(WHAT COMMAND...): the command's output is shown where it fails.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# What the consumer must say; `linked`: whether it needs libfusor.so.
function(run_consumer program linked)
  run("the program" ${program})
  if(NOT output MATCHES "y = 0 0.5 2.5\nrefused: .+\nmine = 7")
    message(FATAL_ERROR "the program printed something else:\n${output}")
  endif()
  run("ldd" ldd ${program})
  if(output MATCHES "libfusor[.]so" AND NOT linked)
    message(FATAL_ERROR "${program} was to be linked with libfusor.a:\n${output}")
  elseif(linked AND NOT output MATCHES "libfusor[.]so[.]0 => ${WORK}")
    message(FATAL_ERROR "${program} was to be linked with the libfusor.so.0 in ${WORK}:\n${output}")
  endif()
endfunction()

# pkg_config(PROGRAM FLAGS...): the consumer built from what pkg-config says, and `link` before it.
function(build_with_pkg_config program link)
  run("pkg-config" pkg-config ${ARGN} --cflags --libs fusor)
  string(REPLACE "-lfusor" "${link}" output "${output}")
  separate_arguments(flags UNIX_COMMAND "${output}")
  run("build" ${CXX} -std=c++20 -I${SOURCE}/project ${SOURCE}/project/consumer.cpp -o ${program} ${flags})
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run("install" ${CMAKE_COMMAND} --install ${FUSOR_BUILD} --prefix ${WORK}/staged)
# Nothing installed may know where it was installed to.
file(RENAME ${WORK}/staged ${WORK}/moved)
file(GLOB at_top RELATIVE ${WORK}/moved/include ${WORK}/moved/include/*)
if(NOT at_top STREQUAL "fusor;fusor.h")
  message(FATAL_ERROR "installed headers lie below fusor/, beside fusor.h alone; there are: ${at_top}")
endif()

if(WAY STREQUAL "pkg_config")
  file(GLOB_RECURSE pc ${WORK}/moved/fusor.pc)
  get_filename_component(pc_dir ${pc} DIRECTORY)
  get_filename_component(lib_dir ${pc_dir} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${pc_dir}:$ENV{PKG_CONFIG_PATH}")
  build_with_pkg_config(${WORK}/with_so "-lfusor -Wl,-rpath,${lib_dir}")
  run_consumer(${WORK}/with_so TRUE)
  build_with_pkg_config(${WORK}/with_a "-l:libfusor.a" --static)
  run_consumer(${WORK}/with_a FALSE)
elseif(WAY STREQUAL "samples")
  cmake_path(GET SOURCE PARENT_PATH tests)
  cmake_path(GET tests PARENT_PATH root)
  run("configure" ${CMAKE_COMMAND} -S ${root}/samples -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
      -DCMAKE_PREFIX_PATH=${WORK}/moved)
  # Each is built and run before, beside the library: here three tell whether an installed one serves them.
  set(few explain query_engines save_load)
  list(TRANSFORM few PREPEND sample_ OUTPUT_VARIABLE targets)
  list(JOIN few "|" names)
  run("build" ${CMAKE_COMMAND} --build ${WORK}/build --target ${targets})
  run("the samples" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure --no-tests=error -R "^samples/(${names})")
else()
  set(target_shared fusor::fusor)
  set(target_static fusor::fusor_static)
  run("configure" ${CMAKE_COMMAND} -S ${SOURCE}/project -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
      -DCMAKE_PREFIX_PATH=${WORK}/moved -DFUSOR_TARGET=${target_${WAY}})
  run("build" ${CMAKE_COMMAND} --build ${WORK}/build)
  string(COMPARE EQUAL ${WAY} shared linked)
  run_consumer(${WORK}/build/consumer ${linked})
endif()

# The installed command starts.
file(GLOB command ${WORK}/moved/bin/fusor)
run("the installed command" ${command} devices)
