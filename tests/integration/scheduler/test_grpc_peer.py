"""What a peer answers, or why it does not, comes in the scheduler's words."""

import grpc
import pytest

from kvmanager.v1 import inspection_pb2 as pb
from kvmanager.v1 import inspection_pb2_grpc
from scheduler.adapters.grpc_inspector import GrpcPoolInspector
from scheduler.errors import NotFound, NotReady, RequestFailed, RequestRefused


class Refusing(inspection_pb2_grpc.InspectorServicer):
    """Ends every question with one status."""

    code = grpc.StatusCode.OK

    async def ListSteps(self, request, context):  # noqa: N802 - the name is the wire's
        if self.code is not grpc.StatusCode.OK:
            await context.abort(self.code, "because")
        return pb.ListStepsResponse(steps=[pb.StepRecord(step_id=7)])


@pytest.fixture
async def peer(tmp_path):
    address, servicer = f"unix:{tmp_path / 'peer.sock'}", Refusing()
    server = grpc.aio.server()
    inspection_pb2_grpc.add_InspectorServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    await server.start()
    inspector = GrpcPoolInspector(address)
    yield servicer, inspector
    await inspector.close()
    await server.stop(None)


async def test_an_answer_comes_through_and_a_closed_inspector_connects_again(peer):
    _, inspector = peer
    for _ in range(2):
        assert [step.step_id for step in (await inspector.steps("w", 1)).steps] == [7]
        await inspector.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.INVALID_ARGUMENT, RequestRefused),
        (grpc.StatusCode.OUT_OF_RANGE, RequestRefused),
        (grpc.StatusCode.UNAVAILABLE, NotReady),
        (grpc.StatusCode.DATA_LOSS, RequestFailed),
    ],
)
async def test_a_status_becomes_the_error_that_callers_know(peer, code, error):
    servicer, inspector = peer
    servicer.code = code
    with pytest.raises(error, match="because"):
        await inspector.steps("w", 1)


async def test_a_peer_that_is_not_there_is_named(tmp_path):
    inspector = GrpcPoolInspector(f"unix:{tmp_path / 'nobody.sock'}")
    with pytest.raises(NotReady, match=r"nobody\.sock does not answer"):
        await inspector.pools()
    await inspector.close()
