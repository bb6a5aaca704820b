# Carries out one install test. WAY: cmake or pkg_config; WORK: a folder of its own, emptied first.

# run(WHAT COMMAND...): the command's output is shown where it fails.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run("install" ${CMAKE_COMMAND} --install ${FUSOR_BUILD} --prefix ${WORK}/staged)
# Nothing installed may know where it was installed to.
file(RENAME ${WORK}/staged ${WORK}/moved)

if(WAY STREQUAL "cmake")
  run("configure" ${CMAKE_COMMAND} -S ${SOURCE}/project -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
      -DCMAKE_PREFIX_PATH=${WORK}/moved)
  run("build" ${CMAKE_COMMAND} --build ${WORK}/build)
  run("the program" ${WORK}/build/consumer)
else()
  file(GLOB_RECURSE pc ${WORK}/moved/fusor.pc)
  get_filename_component(pc_dir ${pc} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${pc_dir}:$ENV{PKG_CONFIG_PATH}")
  run("pkg-config" pkg-config --cflags --libs fusor)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run("build" ${CXX} -std=c++20 ${SOURCE}/consumer.cpp -o ${WORK}/consumer ${flags})
  run("the program" ${WORK}/consumer)
endif()
if(NOT output MATCHES "y = 0 0.5 2.5")
  message(FATAL_ERROR "the program printed something else:\n${output}")
endif()

# The installed command starts.
file(GLOB command ${WORK}/moved/bin/fusor)
run("the installed command" ${command} devices)
